#!lua flags=allow-oom
-- Put the record's settings right, unless they are others by now. KEYS: meta. ARGV: epoch, expected, settings, channel,
-- news.
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'settings')
local refused = refusal(m[1], m[2], ARGV[1])
if refused then
  return refused
end
if m[3] == ARGV[2] then
  redis.call('HSET', KEYS[1], 'settings', ARGV[3])
  redis.call('PUBLISH', ARGV[4], ARGV[5])
end
return {'ok'}
