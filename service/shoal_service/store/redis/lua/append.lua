-- Appends to the log.

--- script: append
-- Appends one entry, or returns the known answer to its key. A refusal returns the facts for rules.check_append.
-- KEYS: meta, log, data, answers, order, needs, named, documents.
-- ARGV: kind, points, size, budget, channel, message, channel for new settings (empty: there are none), settings,
--       has key, key, digest, now, keys kept, seconds kept, has references, entries read after, key of the blob,
--       has expected settings, those, CRC-32 of the payload, last entry known as acknowledged, has step of a source,
--       field of its position, position before (empty: none), beginning of the new document, most positions, field of
--       the definition of the source (empty: no condition), its digest, then the pieces of the payload (at least one).
-- The script has no flags: a known key is answered even when the memory is full. Then the first write is refused, and
-- with it everything.
local meta, log, data, answers, order, needs, named, documents = unpack(KEYS)
local points, size, budget = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keyed, key, digest, now = ARGV[9] == '1', ARGV[10], ARGV[11], tonumber(ARGV[12])
local keys_kept, seconds_kept = tonumber(ARGV[13]), tonumber(ARGV[14])
local referring, after, blob_key = ARGV[15] == '1', ARGV[16], ARGV[17]
local conditional, expected = ARGV[18] == '1', ARGV[19]
local stepping, field, before, head = ARGV[22] == '1', ARGV[23], ARGV[24], ARGV[25]
local FIRST_PIECE, FORGET_EVERY = 29, 64

local m = redis.call('HMGET', meta, 'seq', 'offset', 'bytes', 'applied', 'answers', 'answers_floor', 'floor_seq')
if not m[1] then
  return {'gone'}
end
local newest = tonumber(m[5])

-- An answer is five doubles (at, ordinal, seq, offset, points) and the digest. Whole numbers are exact.
local function known(at, ordinal)
  return ordinal > newest - keys_kept and now - at < seconds_kept
end

local function forget_expired()
  local floor, gone = tonumber(m[6]), 0
  for i, old in ipairs(redis.call('LRANGE', order, 0, 2 * FORGET_EVERY - 1)) do
    local answer = redis.call('HGET', answers, old)
    if answer then
      local at, ordinal = struct.unpack('>dd', answer)
      if ordinal == floor + i then -- else the key was used again, and a later element of the list counts
        if known(at, ordinal) then
          break
        end
        redis.call('HDEL', answers, old)
      end
    end
    gone = i
  end
  if gone > 0 then
    redis.call('LTRIM', order, gone, -1)
    redis.call('HSET', meta, 'answers_floor', text(floor + gone))
  end
end

if keyed then
  local answer = redis.call('HGET', answers, key)
  if answer then
    local at, ordinal, seq, offset, n = struct.unpack('>ddddd', answer)
    if known(at, ordinal) then
      return {'known', string.sub(answer, 41), seq, offset, n, at == now and 1 or 0}
    end
  end
end
local stored = stepping and redis.call('HGET', documents, field)
if stepping then
  local position = ''
  if stored then
    local whole = row_hash(field, string.sub(stored, 9)) == string.sub(stored, 1, 8)
    position = whole and cjson.decode(string.sub(stored, 9)).position
  end
  if position ~= before then
    return {'step', stored}
  end
  if ARGV[27] ~= '' then
    local definition = redis.call('HGET', documents, ARGV[27])
    if not definition or redis.sha1hex(string.sub(definition, 9)) ~= ARGV[28] then
      return {'changed'}
    end
  end
end
local unapplied = tonumber(m[3]) - tonumber(m[4])
local settings_match = not conditional or redis.call('HGET', meta, 'settings') == expected
local within_log, has_blob = true, true
if referring then
  within_log = tonumber(m[7]) <= tonumber(after) and tonumber(after) <= tonumber(m[1])
  local header = redis.call('HGET', named, blob_key)
  has_blob = header and string.sub(header, 1, 1) ~= '~'
end
if unapplied > budget or not (settings_match and within_log and has_blob) then
  return {'refused', unapplied, settings_match and 1 or 0, tonumber(m[7]), tonumber(m[1]), has_blob and 1 or 0}
end

local n_positions, position_bytes
if stepping then
  n_positions, position_bytes = held_documents(documents, 'sources')
  if not stored and n_positions >= tonumber(ARGV[26]) then
    return {'full', n_positions, position_bytes}
  end
end

-- The log must reach as far as it was acknowledged, and its last row must match the counters.
if tonumber(m[1]) < tonumber(ARGV[21]) then
  return {'lost', tonumber(m[1])}
end
local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
local last_seq = last and tonumber(string.match(last[1], '^%d+')) or tonumber(m[7])
local differs = last and last_seq == tonumber(m[1]) and (last[2][2] ~= m[2] or last[2][4] ~= m[3])
if last_seq < tonumber(m[1]) or differs then
  return {'damaged', last_seq}
end

-- The ids are the counters of the stream. An id that exists, or a later one, makes the first XADD an error.
local seq, offset, bytes = tonumber(m[1]) + 1, tonumber(m[2]) + points, tonumber(m[3]) + size
local id = text(seq)
local hash = row_hash(id, text(offset), text(bytes), ARGV[2], ARGV[3], ARGV[1], ARGV[20])
redis.call('XADD', log, id .. '-0', 'o', text(offset), 'b', text(bytes), 'n', ARGV[2], 's', ARGV[3], 'k', ARGV[1],
  'c', ARGV[20], 'h', hash)
for i = FIRST_PIECE, #ARGV do
  redis.call('XADD', data, id .. '-' .. (i - FIRST_PIECE), 'd', ARGV[i])
end
if referring then
  redis.call('HSET', needs, id, after .. ' ' .. blob_key)
end
redis.call('HSET', meta, 'seq', id, 'offset', text(offset), 'bytes', text(bytes))
if stepping then
  local value = head .. ',"seq":' .. id .. ',"log_offset":' .. text(offset) .. '}'
  n_positions = stored and n_positions or n_positions + 1
  position_bytes = position_bytes + #value - (stored and #stored - 8 or 0)
  redis.call('HSET', documents, field, row_hash(field, value) .. value, 'sources',
    text(n_positions) .. ' ' .. text(position_bytes))
end
if ARGV[7] ~= '' then
  put_settings(meta, ARGV[8])
  redis.call('PUBLISH', ARGV[7], ARGV[6])
end
if keyed then
  newest = newest + 1
  redis.call('HSET', answers, key, struct.pack('>ddddd', now, newest, seq, offset, points) .. digest)
  redis.call('RPUSH', order, key)
  redis.call('HSET', meta, 'answers', text(newest))
  if newest % FORGET_EVERY == 0 then
    forget_expired()
  end
end
redis.call('PUBLISH', ARGV[5], ARGV[6])
return {'ok', seq, offset}
