-- Published views and labels. All of it is volatile.

--- script: put_view_piece allow-oom
-- Stores one piece of a blob of the next view. KEYS: meta, view. ARGV: epoch, field, piece.
local refused = refusal(KEYS[1], ARGV[1])
if refused then
  return refused
end
volatile(function()
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
end)
return {'ok'}

--- script: publish_view allow-oom
-- Publishes a view: its head, and blobs whose pieces are all there. Pieces of other blobs are deleted.
-- KEYS: meta, view. ARGV: epoch, head, runs, channel, message.
local meta, view = unpack(KEYS)
local refused = refusal(meta, ARGV[1])
if refused then
  return refused
end
local kept = {head = true, runs = true}
for id, n in string.gmatch(ARGV[3], '(%S+):(%d+)') do
  for i = 0, tonumber(n) - 1 do
    local field = id .. '/' .. i
    if redis.call('HEXISTS', view, field) == 0 then
      return {'torn'}
    end
    kept[field] = true
  end
end
volatile(function()
  for _, field in ipairs(redis.call('HKEYS', view)) do
    if not kept[field] then
      redis.call('HDEL', view, field)
    end
  end
  redis.call('HSET', view, 'head', ARGV[2], 'runs', ARGV[3])
end)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {'ok'}

--- script: put_labels allow-oom
-- Keeps the ids of an entry's points for some time. KEYS: meta, labels.
-- ARGV: epoch, labels, milliseconds, channel, message.
local refused = refusal(KEYS[1], ARGV[1])
if refused then
  return refused
end
volatile(function()
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {'ok'}
