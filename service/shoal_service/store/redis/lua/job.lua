#!lua flags=allow-oom
-- Write a job if its version is the one expected; of more than are kept, the oldest goes. KEYS: meta, jobs.
-- ARGV: id, version expected (0: none is there), body, jobs kept.
local meta, jobs = unpack(KEYS)
local id, expected, body = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not redis.call('HGET', meta, 'seq') then
  return {'gone'}
end
local held = redis.call('HGET', jobs, id)
local version, ordinal = 0, nil
if held then
  version, ordinal = struct.unpack('>dd', held)
end
if version == expected + 1 and string.sub(held, 17) == body then
  return {'ok', 2} -- sent again after its reply was lost, or so: the caller looks closer
end
if version ~= expected then
  return {'ok', 0}
end
if not held then
  ordinal = tonumber(redis.call('HGET', jobs, '') or '0') + 1
  redis.call('HSET', jobs, '', text(ordinal))
end
redis.call('HSET', jobs, id, struct.pack('>dd', version + 1, ordinal) .. body)
if not held then
  local flat = redis.call('HGETALL', jobs)
  for i = 1, #flat, 2 do
    if flat[i] ~= '' then
      local _, at = struct.unpack('>dd', flat[i + 1])
      if at <= ordinal - tonumber(ARGV[4]) then
        redis.call('HDEL', jobs, flat[i])
      end
    end
  end
end
return {'ok', 1}
