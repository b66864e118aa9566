-- Blobs under keys.

--- script: put_blob_piece
-- Stores one piece of a blob. With the last piece, if all are there, the blob becomes visible.
-- KEYS: meta, blobs, named. ARGV: key, size, sha256, blob id, number of pieces, index of this piece, the piece.
local meta, blobs, named = unpack(KEYS)
local key, id, n_pieces, index = ARGV[1], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local refused = refusal(meta)
if refused then
  return refused
end
local header = table.concat({ARGV[2], ARGV[3], id .. ':' .. ARGV[5]}, ' ')
local held = redis.call('HGET', named, key)
if held and held ~= '~' .. header then
  if string.sub(held, 1, 1) ~= '~' then
    return {'there', held}
  end
  drop_run(blobs, string.match(held, '%S+$')) -- an earlier blob that was never finished
  held = false
end
if not held and index > 0 then
  return {'torn'}
end
redis.call('HSET', blobs, id .. '/' .. index, ARGV[7])
redis.call('HSET', named, key, '~' .. header)
if index == n_pieces - 1 then
  for i = 0, n_pieces - 1 do
    if redis.call('HEXISTS', blobs, id .. '/' .. i) == 0 then
      return {'torn'}
    end
  end
  redis.call('HSET', named, key, header)
end
return {'ok'}

--- script: drop_blob allow-oom
-- Deletes a blob, unless an entry refers to it. KEYS: meta, blobs, needs, named. ARGV: key.
local meta, blobs, needs, named = unpack(KEYS)
local refused = refusal(meta)
if refused then
  return refused
end
local _, referenced = all_references(needs)
drop_blob(named, blobs, ARGV[1], referenced)
return {'ok'}
