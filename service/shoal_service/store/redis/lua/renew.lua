#!lua flags=allow-oom
-- Lead on. A lease that has run out, or was lost in a restart, is taken up again as long as nobody else has led since:
-- the epoch says so. KEYS: meta, lease, view. ARGV: owner, epoch, milliseconds.
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
local refused = refusal(m[1], m[2], ARGV[2])
if refused then
  return refused
end
volatile(function()
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
end)
return {'ok', redis.call('HGET', KEYS[3], 'runs') or ''}
