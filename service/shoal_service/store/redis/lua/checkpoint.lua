#!lua flags=allow-oom
-- Make a checkpoint count: write its last piece, name its blob, let go of older checkpoints and of old entries.
-- KEYS: meta, log, data, checkpoints, blobs, needs, named.
-- ARGV: epoch, seq, log offset, size, sha256, blob id, number of pieces, the last piece, window seq or '-', keep after or
--       '-', then the names of damaged blobs.
-- Allowed when the memory is full: it is what lets the log be trimmed.
local meta, log, data, checkpoints, blobs, needs, named = unpack(KEYS)
local at, id, n_pieces = ARGV[2], ARGV[6], tonumber(ARGV[7])
local run = id .. ':' .. ARGV[7]
local window, keep_after = ARGV[9], tonumber(ARGV[10])

local m = redis.call('HMGET', meta, 'seq', 'epoch', 'floor_seq', 'staged')
local refused = refusal(m[1], m[2], ARGV[1], at)
if refused then
  return refused
end
local header = table.concat({ARGV[3], ARGV[4], ARGV[5], run, window}, ' ')
if redis.call('HGET', checkpoints, at) == header then
  return {'ok'} -- sent again after its reply was lost
end
for i = 0, n_pieces - 2 do
  if redis.call('HEXISTS', blobs, id .. '/' .. i) == 0 then
    return {'torn'}
  end
end

if m[4] and m[4] ~= '' and m[4] ~= run then
  drop_run(blobs, m[4])
end
redis.call('HSET', meta, 'staged', '')
redis.call('HSET', blobs, id .. '/' .. (n_pieces - 1), ARGV[8])

local function run_of(old)
  return string.match(old, '^%S+ %S+ %S+ (%S+)')
end
local damaged, kept = {}, {tonumber(at)}
for i = 11, #ARGV do
  damaged[ARGV[i]] = true
end
local function let_go(seq, old)
  drop_run(blobs, run_of(old))
  redis.call('HDEL', checkpoints, seq)
end
local held = redis.call('HGETALL', checkpoints)
for i = 1, #held, 2 do
  local seq, old = held[i], held[i + 1]
  if seq == at or damaged[run_of(old)] then
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

-- Trim: up to the first of the places that somebody may still have to read from.
local floor = tonumber(m[3])
if #kept > 1 then
  local last = kept[2]
  for i = 1, 2 do
    local old = redis.call('HGET', checkpoints, text(kept[i]))
    last = math.min(last, tonumber(string.match(old, ' (%d+)$')) or last)
  end
  last = math.min(last, keep_after or last)
  local needed = all_needs(needs)
  for seq, need in pairs(needed) do
    if seq > kept[2] then
      last = math.min(last, need[1])
    end
  end
  local offset, bytes = place(log, last)
  if last > floor and offset then
    redis.call('HSET', meta, 'floor_seq', text(last), 'floor_offset', text(offset), 'floor_bytes', text(bytes))
    redis.call('XTRIM', log, 'MINID', '=', text(last + 1) .. '-0')
    redis.call('XTRIM', data, 'MINID', '=', text(last + 1) .. '-0')
    local gone = {}
    for seq, need in pairs(needed) do
      if seq <= last then
        redis.call('HDEL', needs, text(seq))
        gone[#gone + 1] = need[2]
      end
    end
    if #gone > 0 then
      local _, named_by = all_needs(needs)
      for _, key in ipairs(gone) do
        drop_named(named, blobs, key, named_by)
      end
    end
  end
end
return {'ok'}
