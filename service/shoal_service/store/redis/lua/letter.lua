#!lua flags=allow-oom
-- Keep an entry aside; one that is there stays as it is. KEYS: meta, letters.
-- ARGV: epoch, seq, header, then the payload's pieces.
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
local refused = refusal(m[1], m[2], ARGV[1])
if refused then
  return refused
end
if redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3]) == 1 then
  for i = 4, #ARGV do
    redis.call('HSET', KEYS[2], ARGV[2] .. '/' .. (i - 4), ARGV[i])
  end
end
return {'ok'}
