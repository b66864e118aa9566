-- A name in the registry, or who has it already. KEYS: streams, format. ARGV: name, value, limit, format version.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  return {'there', held}
end
local n = redis.call('HLEN', KEYS[1])
if n >= tonumber(ARGV[3]) then
  return {'full', n}
end
redis.call('SETNX', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'ok'}
