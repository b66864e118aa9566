#!lua flags=allow-oom
-- How far the learner is. KEYS: meta. ARGV: epoch, payload bytes up to the last entry applied.
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
local refused = refusal(m[1], m[2], ARGV[1])
if refused then
  return refused
end
redis.call('HSET', KEYS[1], 'applied', ARGV[2])
return {'ok'}
