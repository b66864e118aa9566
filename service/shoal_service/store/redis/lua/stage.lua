#!lua flags=allow-oom
-- Write one piece of a large checkpoint ahead of its name. A blob that was begun before and never named goes.
-- KEYS: meta, blobs. ARGV: epoch, seq, blob id, number of pieces, index of this one, the piece.
local meta, blobs = unpack(KEYS)
local run = ARGV[3] .. ':' .. ARGV[4]
local m = redis.call('HMGET', meta, 'seq', 'epoch', 'staged')
local refused = refusal(m[1], m[2], ARGV[1], ARGV[2])
if refused then
  return refused
end
if m[3] ~= run then
  if m[3] and m[3] ~= '' then
    drop_run(blobs, m[3])
  end
  redis.call('HSET', meta, 'staged', run)
end
redis.call('HSET', blobs, ARGV[3] .. '/' .. ARGV[5], ARGV[6])
return {'ok'}
