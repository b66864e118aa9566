-- Functions that the scripts share. scripts.py puts this file in front of each script.

-- Converts a whole number to text. Lua's own conversion uses exponents above 1e14.
local function text(number)
  return string.format('%.0f', number)
end

-- Returns the hash of a row, over its fields as text. log.py and checkpoints.py compute the same one.
local function row_hash(...)
  return string.sub(redis.sha1hex(table.concat({...}, ' ')), 1, 8)
end

-- Writes the settings of a stream with their hash, which registry.py checks.
local function put_settings(meta, settings)
  redis.call('HSET', meta, 'settings', settings, 'settings_hash', row_hash(settings))
end

-- Returns the position behind an entry: its log offset, and the payload bytes up to it. Nil when the log lacks the entry
-- or its row is damaged. The order of the fields is that of append.lua. Rows of format 1 have no hash.
local function position(log, seq)
  local id = text(seq)
  local row = redis.call('XRANGE', log, id .. '-0', id .. '-0')[1]
  if not row then
    return nil
  end
  local f = row[2]
  if f[14] and row_hash(id, f[2], f[4], f[6], f[8], f[10], f[12]) ~= f[14] then
    return nil
  end
  return tonumber(row[2][2]), tonumber(row[2][4])
end

-- Returns the refusal of a writer that must stop, or whose position is beyond the log. Nil when it may go on.
local function refusal(meta, epoch, seq)
  local m = redis.call('HMGET', meta, 'seq', 'epoch')
  if not m[1] then
    return {'gone'}
  end
  if epoch and tonumber(m[2]) ~= tonumber(epoch) then
    return {'stale', tonumber(m[2])}
  end
  if seq and (tonumber(seq) < 0 or tonumber(seq) > tonumber(m[1])) then
    return {'beyond', tonumber(m[1])}
  end
  return nil
end

-- Deletes the pieces of a blob, which is named 'id:number of pieces'.
local function drop_run(blobs, run)
  local id, n = string.match(run, '^(.*):(%d+)$')
  for i = 0, tonumber(n) - 1 do
    redis.call('HDEL', blobs, id .. '/' .. i)
  end
end

-- Deletes a blob by its key, unless an entry refers to it. `referenced` is the set of keys that entries refer to.
local function drop_blob(named, blobs, key, referenced)
  local header = redis.call('HGET', named, key)
  if header and not referenced[key] then
    drop_run(blobs, string.match(header, '%S+$'))
    redis.call('HDEL', named, key)
  end
end

-- Returns the references of entries by seq: the seq after which entries are read again, and the key of a blob. Returns
-- the set of all keys, too.
local function all_references(needs)
  local found, keys = {}, {}
  local flat = redis.call('HGETALL', needs)
  for i = 1, #flat, 2 do
    local after, key = string.match(flat[i + 1], '^(%d+) (.*)$')
    found[tonumber(flat[i])] = {tonumber(after), key}
    keys[key] = true
  end
  return found, keys
end

-- Deletes the blobs that no entry refers to.
local function drop_unreferenced(needs, named, blobs)
  local _, referenced = all_references(needs)
  for _, key in ipairs(redis.call('HKEYS', named)) do
    drop_blob(named, blobs, key, referenced)
  end
end

-- Sets the epoch. The applied mark falls back to the newest checkpoint, where the next writer begins. A staged blob
-- that was never referred to is deleted.
local function begin_epoch(meta, log, checkpoints, blobs, epoch)
  local m = redis.call('HMGET', meta, 'floor_bytes', 'staged')
  if m[2] and m[2] ~= '' then
    drop_run(blobs, m[2])
  end
  local newest = 0
  for _, seq in ipairs(redis.call('HKEYS', checkpoints)) do
    newest = math.max(newest, tonumber(seq) or 0)
  end
  local _, bytes = position(log, newest)
  redis.call('HSET', meta, 'epoch', text(epoch), 'applied', text(bytes or tonumber(m[1])), 'staged', '')
end

-- Returns the number and the bytes of the documents of a kind, from the field that counts them.
local function held_documents(documents, kind)
  local n, bytes = string.match(redis.call('HGET', documents, kind) or '', '^(%d+) (%d+)$')
  return tonumber(n or '0'), tonumber(bytes or '0')
end

-- Runs writes that stay out of the append-only file and of replicas. They may be lost.
local function volatile(write)
  redis.set_repl(redis.REPL_NONE)
  write()
  redis.set_repl(redis.REPL_ALL)
end
