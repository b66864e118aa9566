#!lua flags=allow-oom
-- A writer comes (a new epoch), or goes (its own epoch is given). Either way the applied mark falls back to the newest
-- checkpoint, where the next learner begins, and a blob that was begun and never named goes.
-- KEYS: meta, log, checkpoints, blobs. ARGV: the epoch of who goes; empty for who comes.
local meta, log, checkpoints, blobs = unpack(KEYS)
local m = redis.call('HMGET', meta, 'seq', 'epoch', 'floor_bytes', 'staged')
local refused = refusal(m[1], m[2], ARGV[1] == '' and m[2] or ARGV[1])
if refused then
  return refused
end
if m[4] and m[4] ~= '' then
  drop_run(blobs, m[4])
end
local newest = 0
for _, seq in ipairs(redis.call('HKEYS', checkpoints)) do
  newest = math.max(newest, tonumber(seq))
end
local _, bytes = place(log, newest)
local epoch = tonumber(m[2]) + (ARGV[1] == '' and 1 or 0)
redis.call('HSET', meta, 'epoch', text(epoch), 'applied', text(bytes or tonumber(m[3])), 'staged', '')
return {'ok', epoch}
