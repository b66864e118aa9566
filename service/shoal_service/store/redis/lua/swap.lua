#!lua flags=allow-oom
-- Replace what the registry holds under a name, if it is what is expected; an empty value takes the name out. Done
-- already counts as done. KEYS: streams. ARGV: name, expected, value, channel, news.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held == ARGV[2] then
  if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  end
  redis.call('PUBLISH', ARGV[4], ARGV[5])
  return {'ok'}
end
if held == ARGV[3] or (not held and ARGV[3] == '') then
  return {'ok'}
end
return {'other'}
