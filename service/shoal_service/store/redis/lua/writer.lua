-- The writer of a stream: its epoch, its applied mark, and the correction of the settings.

--- script: acquire_writer allow-oom
-- A new writer gets the next epoch, and blobs that no entry refers to are deleted. A writer that ends gives its own
-- epoch, which stays. `begin_epoch` resets the applied mark in both cases.
-- KEYS: meta, log, checkpoints, blobs, needs, named. ARGV: the epoch of a writer that ends, or empty.
local meta, log, checkpoints, blobs, needs, named = unpack(KEYS)
local ending = ARGV[1] ~= ''
local refused = refusal(meta, ending and ARGV[1] or nil)
if refused then
  return refused
end
local epoch = tonumber(redis.call('HGET', meta, 'epoch'))
if not ending then
  epoch = epoch + 1
  drop_unreferenced(needs, named, blobs)
end
begin_epoch(meta, log, checkpoints, blobs, epoch)
return {'ok', epoch}

--- script: mark_applied allow-oom
-- KEYS: meta. ARGV: epoch, payload bytes up to the last applied entry.
local refused = refusal(KEYS[1], ARGV[1])
if refused then
  return refused
end
redis.call('HSET', KEYS[1], 'applied', ARGV[2])
return {'ok'}

--- script: replace_settings allow-oom
-- Replaces the settings of the record if they are the expected ones.
-- KEYS: meta. ARGV: epoch, expected, settings, channel, message.
local refused = refusal(KEYS[1], ARGV[1])
if refused then
  return refused
end
if redis.call('HGET', KEYS[1], 'settings') == ARGV[2] then
  put_settings(KEYS[1], ARGV[3])
  redis.call('PUBLISH', ARGV[4], ARGV[5])
end
return {'ok'}
