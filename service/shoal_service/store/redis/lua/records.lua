-- Small records of a stream: dead letters and jobs; and pages of the records of its points.

--- script: add_dead_letter allow-oom
-- Stores a dead letter. One of the same seq stays as it is.
-- KEYS: meta, letters. ARGV: epoch, seq, header, then the pieces of the payload.
local refused = refusal(KEYS[1], ARGV[1])
if refused then
  return refused
end
if redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3]) == 1 then
  for i = 4, #ARGV do
    redis.call('HSET', KEYS[2], ARGV[2] .. '/' .. (i - 4), ARGV[i])
  end
end
return {'ok'}

--- script: put_job allow-oom
-- Writes a job if its version is the expected one, and deletes the oldest job beyond the limit. Returns 1 when it was
-- written, 0 when the version differs, 2 when the store holds this version and body already.
-- KEYS: meta, jobs. ARGV: id, expected version (0: there is none), body, number of jobs kept.
local meta, jobs = unpack(KEYS)
local id, expected, body = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local refused = refusal(meta)
if refused then
  return refused
end
local held = redis.call('HGET', jobs, id)
local version, ordinal = 0, nil
if held then
  version, ordinal = struct.unpack('>dd', held)
end
if version == expected + 1 and string.sub(held, 17) == body then
  return {'ok', 2}
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

--- script: write_pages allow-oom
-- Writes pages, and deletes all pages of some runs. A command that arrives after a later one of the same writer changes
-- nothing: it was sent on a connection that broke, and was sent again or given up.
-- KEYS: meta, pages. ARGV: epoch, number of the command, number of pages, then field and bytes of each, then run and
-- number of pages of each run to delete.
local refused = refusal(KEYS[1], ARGV[1])
if refused then
  return refused
end
local epoch, last = string.match(redis.call('HGET', KEYS[1], 'pages') or '', '^(%d+) (%d+)$')
if epoch == ARGV[1] and tonumber(ARGV[2]) <= tonumber(last) then
  return {'ok'}
end
redis.call('HSET', KEYS[1], 'pages', ARGV[1] .. ' ' .. ARGV[2])
local n = tonumber(ARGV[3])
for i = 0, n - 1 do
  redis.call('HSET', KEYS[2], ARGV[4 + 2 * i], ARGV[5 + 2 * i])
end
for i = 4 + 2 * n, #ARGV, 2 do
  for page = 0, tonumber(ARGV[i + 1]) - 1 do
    redis.call('HDEL', KEYS[2], ARGV[i] .. '/' .. page)
  end
end
return {'ok'}
