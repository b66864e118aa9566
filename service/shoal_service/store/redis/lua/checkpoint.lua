-- Checkpoints: the pieces of a large state first, then the last piece with the header and the trim of the log.

--- script: stage_piece allow-oom
-- Stores one piece of a checkpoint before its header. An earlier blob that was staged and never used is deleted.
-- KEYS: meta, blobs. ARGV: epoch, seq, blob id, number of pieces, index of this piece, the piece.
local meta, blobs = unpack(KEYS)
local run = ARGV[3] .. ':' .. ARGV[4]
local refused = refusal(meta, ARGV[1], ARGV[2])
if refused then
  return refused
end
local staged = redis.call('HGET', meta, 'staged')
if staged ~= run then
  if staged and staged ~= '' then
    drop_run(blobs, staged)
  end
  redis.call('HSET', meta, 'staged', run)
end
redis.call('HSET', blobs, ARGV[3] .. '/' .. ARGV[5], ARGV[6])
return {'ok'}

--- script: save_checkpoint allow-oom
-- Stores the last piece and the header of a checkpoint, deletes older checkpoints and trims the log. It is allowed when
-- the memory is full, because it frees memory.
-- KEYS: meta, log, data, checkpoints, blobs, needs, named.
-- ARGV: epoch, seq, log offset, size, sha256, blob id, number of pieces, the last piece, window seq or '-', keep after or
--       '-', then the runs of damaged checkpoints.
local meta, log, data, checkpoints, blobs, needs, named = unpack(KEYS)
local at, id, n_pieces = ARGV[2], ARGV[6], tonumber(ARGV[7])
local run = id .. ':' .. ARGV[7]
local window, keep_after = ARGV[9], tonumber(ARGV[10])

local refused = refusal(meta, ARGV[1], at)
if refused then
  return refused
end
local header = table.concat({ARGV[3], ARGV[4], ARGV[5], run, window}, ' ')
header = header .. ' h' .. row_hash(at, header)
if redis.call('HGET', checkpoints, at) == header then
  return {'ok'} -- sent again after its reply was lost
end
for i = 0, n_pieces - 2 do
  if redis.call('HEXISTS', blobs, id .. '/' .. i) == 0 then
    return {'torn'}
  end
end

local staged = redis.call('HGET', meta, 'staged')
if staged and staged ~= '' and staged ~= run then
  drop_run(blobs, staged)
end
redis.call('HSET', meta, 'staged', '')
redis.call('HSET', blobs, id .. '/' .. (n_pieces - 1), ARGV[8])

local function run_of(old)
  return string.match(old, '^%S+ %S+ %S+ (%S+)')
end
-- Headers of format 1 have no hash.
local function is_whole(seq, old)
  local body, hash = string.match(old, '^(%S+ %S+ %S+ %S+:%d+ %S+) h(%x+)$')
  if not body then
    return tonumber(seq) and string.match(old, '^%d+ %d+ %x+ %S+:%d+ [%d-]+$')
  end
  return row_hash(seq, body) == hash
end
-- A damaged header may name the blob of another checkpoint, so its pieces stay.
local function delete_checkpoint(seq, old)
  if is_whole(seq, old) then
    drop_run(blobs, run_of(old))
  end
  redis.call('HDEL', checkpoints, seq)
end
local damaged, kept = {}, {tonumber(at)}
for i = 11, #ARGV do
  damaged[ARGV[i]] = true
end
local held = redis.call('HGETALL', checkpoints)
for i = 1, #held, 2 do
  local seq, old = held[i], held[i + 1]
  if seq == at or not is_whole(seq, old) or damaged[run_of(old)] then
    delete_checkpoint(seq, old)
  else
    kept[#kept + 1] = tonumber(seq)
  end
end
redis.call('HSET', checkpoints, at, header)
table.sort(kept, function(a, b) return a > b end)
for i = 3, #kept do
  delete_checkpoint(text(kept[i]), redis.call('HGET', checkpoints, text(kept[i])))
end

-- Trim up to the first position from which somebody may still read. rules.last_droppable is the same rule.
if #kept < 2 then
  return {'ok'}
end
local last = kept[2]
for i = 1, 2 do
  local old = redis.call('HGET', checkpoints, text(kept[i]))
  last = math.min(last, tonumber(string.match(old, '^%S+ %S+ %S+ %S+ (%d+)')) or last)
end
last = math.min(last, keep_after or last)
local references = all_references(needs)
for seq, reference in pairs(references) do
  if seq > kept[2] then
    last = math.min(last, reference[1])
  end
end
local offset, bytes = position(log, last)
if last <= tonumber(redis.call('HGET', meta, 'floor_seq')) or not offset then
  return {'ok'}
end
redis.call('HSET', meta, 'floor_seq', text(last), 'floor_offset', text(offset), 'floor_bytes', text(bytes))
redis.call('XTRIM', log, 'MINID', '=', text(last + 1) .. '-0')
redis.call('XTRIM', data, 'MINID', '=', text(last + 1) .. '-0')
local dropped = {}
for seq, reference in pairs(references) do
  if seq <= last then
    redis.call('HDEL', needs, text(seq))
    dropped[#dropped + 1] = reference[2]
  end
end
local _, referenced = all_references(needs)
for _, key in ipairs(dropped) do
  drop_blob(named, blobs, key, referenced)
end
return {'ok'}
