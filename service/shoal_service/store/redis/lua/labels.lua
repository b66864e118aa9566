#!lua flags=allow-oom
-- The ids given to an entry's points, for a while. KEYS: meta, labels. ARGV: epoch, labels, milliseconds, channel, news.
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
local refused = refusal(m[1], m[2], ARGV[1])
if refused then
  return refused
end
volatile(function()
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {'ok'}
