-- Words that the scripts of one stream share; put in front of each by redis_scripts.py.

-- A whole number as text: Lua's own conversion turns to exponents above 1e14.
local function text(number)
  return string.format('%.0f', number)
end

-- The place behind a held entry: its log offset, and the payload bytes up to it. Nil when the entry is not held.
-- The order of the fields is that of append.lua.
local function place(log, seq)
  local id = text(seq) .. '-0'
  local row = redis.call('XRANGE', log, id, id)[1]
  if not row then
    return nil
  end
  return tonumber(row[2][2]), tonumber(row[2][4])
end

-- Delete the pieces of a blob, which is named 'id:number of pieces'.
local function drop_run(blobs, run)
  local id, n = string.match(run, '^(.*):(%d+)$')
  for i = 0, tonumber(n) - 1 do
    redis.call('HDEL', blobs, id .. '/' .. i)
  end
end

-- Let go of a blob by its key, unless an entry names it. `named_by` has the keys that entries name.
local function drop_named(named, blobs, key, named_by)
  local header = redis.call('HGET', named, key)
  if header and not named_by[key] then
    drop_run(blobs, string.match(header, '%S+$'))
    redis.call('HDEL', named, key)
  end
end

-- What entries need, by seq: the seq after which entries are read again, and the key of a blob; and the keys as a set.
local function all_needs(needs)
  local found, keys = {}, {}
  local flat = redis.call('HGETALL', needs)
  for i = 1, #flat, 2 do
    local after, key = string.match(flat[i + 1], '^(%d+) (.*)$')
    found[tonumber(flat[i])] = {tonumber(after), key}
    keys[key] = true
  end
  return found, keys
end

-- The answer to a writer that must stop, or that is beyond the log; nil when it may go on.
local function refusal(seq, epoch, asked_epoch, asked_seq)
  if not seq then
    return {'gone'}
  end
  if tonumber(epoch) ~= tonumber(asked_epoch) then
    return {'stale', tonumber(epoch)}
  end
  if asked_seq and (tonumber(asked_seq) < 0 or tonumber(asked_seq) > tonumber(seq)) then
    return {'beyond', tonumber(seq)}
  end
  return nil
end

-- Another writer: the applied mark falls back to the newest checkpoint, where it begins, and a blob that was begun and
-- never named goes. `m` is seq, epoch, floor_bytes and staged of `meta`.
local function begin_writer(meta, log, checkpoints, blobs, m, epoch)
  if m[4] and m[4] ~= '' then
    drop_run(blobs, m[4])
  end
  local newest = 0
  for _, seq in ipairs(redis.call('HKEYS', checkpoints)) do
    newest = math.max(newest, tonumber(seq))
  end
  local _, bytes = place(log, newest)
  redis.call('HSET', meta, 'epoch', text(epoch), 'applied', text(bytes or tonumber(m[3])), 'staged', '')
end

-- Let go of the blobs that no entry names.
local function drop_unnamed(needs, named, blobs)
  local _, named_by = all_needs(needs)
  for _, key in ipairs(redis.call('HKEYS', named)) do
    drop_named(named, blobs, key, named_by)
  end
end

-- What is written in here stays out of the append-only file and from replicas: it may be lost.
local function volatile(write)
  redis.set_repl(redis.REPL_NONE)
  write()
  redis.set_repl(redis.REPL_ALL)
end
