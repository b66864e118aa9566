-- The registry of names, and the first and the last step in the life of a stream. registry.py combines them.

--- script: register
-- Adds a name to the registry, or returns what it holds under that name.
-- KEYS: streams, format. ARGV: name, value, limit, format version, whether the other names are a condition, those.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  return {'there', held}
end
local n = redis.call('HLEN', KEYS[1])
if n >= tonumber(ARGV[3]) then
  return {'full', n}
end
if ARGV[5] == '1' then
  local same = n == #ARGV - 5
  for i = 6, #ARGV do
    same = same and redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1
  end
  if not same then
    return {'other'}
  end
end
redis.call('SETNX', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'ok'}

--- script: replace_registration allow-oom
-- Replaces the value of a name if it is the expected one. An empty value removes the name. A replacement that is done
-- already counts as done.
-- KEYS: streams. ARGV: name, expected, value, channel, message.
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

--- script: create_stream
-- Sets the counters of a stream to their start, unless they exist, or existed until the stream was deleted.
-- KEYS: meta. ARGV: settings.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'seq', 0, 'offset', 0, 'bytes', 0, 'floor_seq', 0, 'floor_offset', 0, 'floor_bytes', 0,
    'applied', 0, 'epoch', 0, 'answers', 0, 'answers_floor', 0)
  put_settings(KEYS[1], ARGV[1])
end
return {'ok'}

--- script: delete_stream allow-oom
-- Deletes all keys of a stream. For a day its counters leave a trace, so that a process that was delayed while it
-- created the stream does not create it again.
-- KEYS: meta, then every other key of the stream. ARGV: message, then the channels for it.
for _, key in ipairs(KEYS) do
  redis.call('UNLINK', key)
end
redis.call('HSET', KEYS[1], 'ended', 1)
redis.call('EXPIRE', KEYS[1], 86400)
for i = 2, #ARGV do
  redis.call('PUBLISH', ARGV[i], ARGV[1])
end
return {'ok'}
