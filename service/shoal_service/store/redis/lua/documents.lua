-- Documents of a stream: the fields `kind/name` of a hash. The field of a kind alone has the number and the bytes of its
-- documents, as "number bytes".

--- script: set_document
-- Writes a document, unless there would be too many of its kind, or too many bytes. Then it returns what the others hold.
-- KEYS: meta, documents. ARGV: kind, field, checksum and value, size of the checksum, limits of number and bytes.
local refused = refusal(KEYS[1])
if refused then
  return refused
end
local kind, field, stored, head = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local n, bytes = held_documents(KEYS[2], kind)
if redis.call('HEXISTS', KEYS[2], field) == 1 then
  n, bytes = n - 1, bytes - (redis.call('HSTRLEN', KEYS[2], field) - head)
end
local after = bytes + #stored - head
if n >= tonumber(ARGV[5]) or after > tonumber(ARGV[6]) then
  return {'full', n, bytes}
end
redis.call('HSET', KEYS[2], field, stored, kind, text(n + 1) .. ' ' .. text(after))
return {'ok'}

--- script: delete_document allow-oom
-- Deletes a document, if there is one.
-- KEYS: meta, documents. ARGV: kind, field, size of the checksum.
local refused = refusal(KEYS[1])
if refused then
  return refused
end
local size = redis.call('HSTRLEN', KEYS[2], ARGV[2])
if redis.call('HDEL', KEYS[2], ARGV[2]) == 1 then
  local n, bytes = held_documents(KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], text(n - 1) .. ' ' .. text(bytes - (size - tonumber(ARGV[3]))))
end
return {'ok'}

--- script: change_documents
-- Changes several documents if the store holds what is expected. Returns 1 when it did, 0 when the store holds other
-- documents, 2 when it holds these very changes already. A damaged document counts as none.
-- KEYS: meta, documents. ARGV: size of the checksum, limits of number and bytes, kind and beginning of the fields that
-- are deleted (empty: none), then the expected documents and the changes: the number of each, and for each document
-- kind, field, checksum and value (empty: there is none).
local meta, documents = unpack(KEYS)
local refused = refusal(meta)
if refused then
  return refused
end
local head, most, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local dropped_kind, beginning = ARGV[4], ARGV[5]

local function listed(first)
  local found = {}
  for i = 1, tonumber(ARGV[first]) do
    local at = first + 1 + 3 * (i - 1)
    found[i] = {kind = ARGV[at], field = ARGV[at + 1], stored = ARGV[at + 2]}
  end
  return found, first + 1 + 3 * #found
end

local function whole(field)
  local stored = redis.call('HGET', documents, field)
  local is_whole = stored and row_hash(field, string.sub(stored, head + 1)) == string.sub(stored, 1, head)
  return is_whole and stored or ''
end

local function are_stored(list)
  for _, one in ipairs(list) do
    if whole(one.field) ~= one.stored then
      return false
    end
  end
  return true
end

local expected, next_word = listed(6)
local changes = listed(next_word)
if not are_stored(expected) then
  return {'ok', are_stored(changes) and 2 or 0}
end

-- What each kind holds without the documents that are written or deleted, and then with those that are written.
local held, gone = {}, {}
local function without(kind, field)
  held[kind] = held[kind] or {held_documents(documents, kind)}
  if not gone[field] and redis.call('HEXISTS', documents, field) == 1 then
    held[kind][1] = held[kind][1] - 1
    held[kind][2] = held[kind][2] - (redis.call('HSTRLEN', documents, field) - head)
    gone[field] = true
  end
end
if dropped_kind ~= '' then
  for _, field in ipairs(redis.call('HKEYS', documents)) do
    if string.sub(field, 1, #beginning) == beginning then
      without(dropped_kind, field)
    end
  end
end
for _, one in ipairs(changes) do
  without(one.kind, one.field)
end
local others = {}
for _, one in ipairs(changes) do
  local counts = held[one.kind]
  if one.stored ~= '' then
    others[one.kind] = others[one.kind] or {counts[1], counts[2]}
    counts[1], counts[2] = counts[1] + 1, counts[2] + #one.stored - head
  end
end
for _, one in ipairs(changes) do
  local beside, counts = others[one.kind], held[one.kind]
  if one.stored ~= '' and (counts[1] > most or counts[2] > most_bytes) then
    return {'full', one.kind, beside[1], beside[2]}
  end
end

-- The documents that are written go first: with a full memory the first write is refused, and with it everything.
for _, one in ipairs(changes) do
  if one.stored ~= '' then
    redis.call('HSET', documents, one.field, one.stored)
    gone[one.field] = nil
  end
end
for field in pairs(gone) do
  redis.call('HDEL', documents, field)
end
for kind, counts in pairs(held) do
  redis.call('HSET', documents, kind, text(counts[1]) .. ' ' .. text(counts[2]))
end
return {'ok', 1}
