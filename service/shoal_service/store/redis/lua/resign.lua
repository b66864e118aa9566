#!lua flags=allow-oom
-- Lead no longer, and tell those who stand by. KEYS: lease. ARGV: owner, channel, news.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  volatile(function()
    redis.call('DEL', KEYS[1])
  end)
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return {'ok'}
