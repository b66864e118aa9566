#!lua flags=allow-oom
-- Lead a stream that nobody leads: the lease, and with it a new epoch, in one step. Were they two, who is held up in
-- between would take the epoch from whoever has the lease by then.
-- KEYS: meta, log, checkpoints, blobs, needs, named, lease. ARGV: owner, milliseconds.
local meta, log, checkpoints, blobs, needs, named, lease = unpack(KEYS)
local m = redis.call('HMGET', meta, 'seq', 'epoch', 'floor_bytes', 'staged')
local refused = refusal(m[1], m[2], m[2])
if refused then
  return refused
end
local held = redis.call('GET', lease)
if held and held ~= ARGV[1] then
  return {'held'}
end
local epoch = tonumber(m[2]) + 1
volatile(function()
  redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
end)
drop_unnamed(needs, named, blobs)
begin_writer(meta, log, checkpoints, blobs, m, epoch)
return {'ok', epoch}
