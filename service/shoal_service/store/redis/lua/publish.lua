#!lua flags=allow-oom
-- Show a view: its head, and the blobs that it is made of, all of whose pieces are there. Pieces of others go.
-- KEYS: meta, view. ARGV: epoch, head, runs, channel, news.
local meta, view = unpack(KEYS)
local m = redis.call('HMGET', meta, 'seq', 'epoch')
local refused = refusal(m[1], m[2], ARGV[1])
if refused then
  return refused
end
local named = {head = true, runs = true}
for id, n in string.gmatch(ARGV[3], '(%S+):(%d+)') do
  for i = 0, tonumber(n) - 1 do
    local field = id .. '/' .. i
    if redis.call('HEXISTS', view, field) == 0 then
      return {'torn'}
    end
    named[field] = true
  end
end
volatile(function()
  for _, field in ipairs(redis.call('HKEYS', view)) do
    if not named[field] then
      redis.call('HDEL', view, field)
    end
  end
  redis.call('HSET', view, 'head', ARGV[2], 'runs', ARGV[3])
end)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {'ok'}
