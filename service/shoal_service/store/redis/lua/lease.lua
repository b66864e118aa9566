-- Leases: which process leads a stream. A lease is volatile. The epoch that comes with it is durable.

--- script: acquire_lease allow-oom
-- Acquires the lease with a new epoch in one step. In two steps, a process that is delayed in between would take the
-- epoch from the process that has acquired the lease meanwhile.
-- KEYS: meta, log, checkpoints, blobs, needs, named, lease. ARGV: owner, milliseconds.
local meta, log, checkpoints, blobs, needs, named, lease = unpack(KEYS)
local refused = refusal(meta)
if refused then
  return refused
end
local held = redis.call('GET', lease)
if held and held ~= ARGV[1] then
  return {'held'}
end
local epoch = tonumber(redis.call('HGET', meta, 'epoch')) + 1
volatile(function()
  redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
end)
drop_unreferenced(needs, named, blobs)
begin_epoch(meta, log, checkpoints, blobs, epoch)
return {'ok', epoch}

--- script: renew_lease allow-oom
-- Renews the lease. A lease that expired, or was lost in a restart, is acquired again if no other process has led the
-- stream since. The epoch tells.
-- KEYS: meta, lease, view. ARGV: owner, epoch, milliseconds.
local refused = refusal(KEYS[1], ARGV[2])
if refused then
  return refused
end
volatile(function()
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
end)
return {'ok', redis.call('HGET', KEYS[3], 'runs') or ''}

--- script: release_lease allow-oom
-- Releases the lease of this owner, and tells the other processes. KEYS: lease. ARGV: owner, channel, message.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  volatile(function()
    redis.call('DEL', KEYS[1])
  end)
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return {'ok'}

--- script: announce allow-oom
-- Records that a learner is alive for so long, and returns all live learners. With no time left it is one no more.
-- KEYS: learners. ARGV: owner, milliseconds.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
volatile(function()
  redis.call('ZADD', KEYS[1], text(now + tonumber(ARGV[2])), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
end)
return redis.call('ZRANGE', KEYS[1], 0, -1)
