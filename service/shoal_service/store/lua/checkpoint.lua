#!lua flags=allow-oom
-- Make a checkpoint count: write its last piece, name its blob, let go of older checkpoints and of old entries.
-- KEYS: meta, log, data, checkpoints, blobs.
-- ARGV: epoch, seq, log offset, size, sha256, blob id, number of pieces, the last piece, keep points, keep bytes, then
--       the names of damaged blobs.
-- Allowed when the memory is full: it is what lets the log be trimmed.
local meta, log, data, checkpoints, blobs = unpack(KEYS)
local at, id, n_pieces = ARGV[2], ARGV[6], tonumber(ARGV[7])
local run = id .. ':' .. ARGV[7]
local keep_points, keep_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])

local m = redis.call('HMGET', meta, 'seq', 'epoch', 'offset', 'bytes', 'floor_seq', 'staged')
local refused = refusal(m[1], m[2], ARGV[1], at)
if refused then
  return refused
end
local header = table.concat({ARGV[3], ARGV[4], ARGV[5], run}, ' ')
if redis.call('HGET', checkpoints, at) == header then
  return {'ok'} -- sent again after its reply was lost
end
for i = 0, n_pieces - 2 do
  if redis.call('HEXISTS', blobs, id .. '/' .. i) == 0 then
    return {'torn'}
  end
end

if m[6] and m[6] ~= '' and m[6] ~= run then
  drop_run(blobs, m[6])
end
redis.call('HSET', meta, 'staged', '')
redis.call('HSET', blobs, id .. '/' .. (n_pieces - 1), ARGV[8])

local damaged, kept = {}, {tonumber(at)}
for i = 11, #ARGV do
  damaged[ARGV[i]] = true
end
local function let_go(seq, old)
  drop_run(blobs, string.match(old, '%S+$'))
  redis.call('HDEL', checkpoints, seq)
end
local held = redis.call('HGETALL', checkpoints)
for i = 1, #held, 2 do
  local seq, old = held[i], held[i + 1]
  if seq == at or damaged[string.match(old, '%S+$')] then
    let_go(seq, old)
  else
    kept[#kept + 1] = tonumber(seq)
  end
end
redis.call('HSET', checkpoints, at, header)
table.sort(kept, function(a, b) return a > b end)
for i = 3, #kept do
  let_go(text(kept[i]), redis.call('HGET', checkpoints, text(kept[i])))
end

-- Trim: the last entry at or before the older checkpoint that no window needs, found by bisection, since along the log
-- "needed" turns from false to true once.
local floor = tonumber(m[5])
if #kept > 1 then
  local last_offset, last_bytes = tonumber(m[3]) - keep_points, tonumber(m[4]) - keep_bytes
  local low, high = floor, kept[2] -- entry `low` may be dropped (or is), the one after `high` may not
  while low < high do
    local middle = low + math.ceil((high - low) / 2) -- a sum of the two would not be exact
    local offset, bytes = place(log, middle)
    if not offset or (offset > last_offset and bytes > last_bytes) then
      high = middle - 1
    else
      low = middle
    end
  end
  if low > floor then
    local offset, bytes = place(log, low)
    redis.call('HSET', meta, 'floor_seq', text(low), 'floor_offset', text(offset), 'floor_bytes', text(bytes))
    redis.call('XTRIM', log, 'MINID', '=', text(low + 1) .. '-0')
    redis.call('XTRIM', data, 'MINID', '=', text(low + 1) .. '-0')
  end
end
return {'ok'}
