#!lua flags=allow-oom
-- The end of a stream. For a day its counters leave a trace, so that nobody who was held up while it was being created
-- begins it anew. KEYS: meta, then every other key of the stream. ARGV: news, then the channels that hear of it.
for _, key in ipairs(KEYS) do
  redis.call('UNLINK', key)
end
redis.call('HSET', KEYS[1], 'ended', 1)
redis.call('EXPIRE', KEYS[1], 86400)
for i = 2, #ARGV do
  redis.call('PUBLISH', ARGV[i], ARGV[1])
end
return {'ok'}
