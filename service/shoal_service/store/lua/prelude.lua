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
