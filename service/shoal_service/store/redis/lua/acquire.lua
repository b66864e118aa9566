#!lua flags=allow-oom
-- A writer comes (a new epoch), or goes (its own epoch is given); `begin_writer` says what that means. Blobs that no
-- entry names go when a writer comes.
-- KEYS: meta, log, checkpoints, blobs, needs, named. ARGV: the epoch of who goes; empty for who comes.
local meta, log, checkpoints, blobs, needs, named = unpack(KEYS)
local m = redis.call('HMGET', meta, 'seq', 'epoch', 'floor_bytes', 'staged')
local refused = refusal(m[1], m[2], ARGV[1] == '' and m[2] or ARGV[1])
if refused then
  return refused
end
local epoch = tonumber(m[2])
if ARGV[1] == '' then
  epoch = epoch + 1
  drop_unnamed(needs, named, blobs)
end
begin_writer(meta, log, checkpoints, blobs, m, epoch)
return {'ok', epoch}
