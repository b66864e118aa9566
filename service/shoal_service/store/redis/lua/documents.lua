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
