-- Access keys of the service, and a counter of their changes. access_keys.py reads and writes them.

--- script: put_access_key
-- Stores a key, or replaces the one of its id. The same key again changes nothing.
-- KEYS: access, format. ARGV: id, value, limit of all keys, format version.
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return {'ok'}
end
local n = 0
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
  if id ~= '' and id ~= ARGV[1] then
    n = n + 1
  end
end
if n >= tonumber(ARGV[3]) then
  return {'full', n}
end
redis.call('SETNX', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[1], '', 1)
return {'ok'}

--- script: delete_access_key allow-oom
-- Deletes a key. Returns whether there was one.
-- KEYS: access, access_used. ARGV: id.
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return {'ok', 0}
end
redis.call('HINCRBY', KEYS[1], '', 1)
return {'ok', 1}

--- script: mark_access_keys_used
-- Records the last use of keys that exist, unless a later one is known.
-- KEYS: access, access_used. ARGV: id and time, in turn.
for i = 1, #ARGV, 2 do
  local id, at = ARGV[i], ARGV[i + 1]
  if id ~= '' and redis.call('HEXISTS', KEYS[1], id) == 1
      and tonumber(redis.call('HGET', KEYS[2], id) or '0') < tonumber(at) then
    redis.call('HSET', KEYS[2], id, at)
  end
end
return {'ok'}
