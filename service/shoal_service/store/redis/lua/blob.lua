-- One piece of a blob that has a key. With the last one, when all are there, it counts; nobody finds it before.
-- KEYS: meta, blobs, named. ARGV: key, size, sha256, blob id, number of pieces, index of this one, the piece.
local meta, blobs, named = unpack(KEYS)
local key, id, n_pieces, index = ARGV[1], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if not redis.call('HGET', meta, 'seq') then
  return {'gone'}
end
local header = table.concat({ARGV[2], ARGV[3], id .. ':' .. ARGV[5]}, ' ')
local held = redis.call('HGET', named, key)
if held and held ~= '~' .. header then
  if string.sub(held, 1, 1) ~= '~' then
    return {'there', held}
  end
  drop_run(blobs, string.match(held, '%S+$')) -- begun before, and never finished
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
