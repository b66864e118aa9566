#!lua flags=allow-oom
-- One piece of a blob that a view is about to be made of. KEYS: meta, view. ARGV: epoch, field, piece.
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
local refused = refusal(m[1], m[2], ARGV[1])
if refused then
  return refused
end
volatile(function()
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
end)
return {'ok'}
