-- A stream's counters at their start, unless they are there, or were there and the stream has ended since.
-- KEYS: meta. ARGV: settings.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'seq', 0, 'offset', 0, 'bytes', 0, 'floor_seq', 0, 'floor_offset', 0, 'floor_bytes', 0,
    'applied', 0, 'epoch', 0, 'answers', 0, 'answers_floor', 0, 'settings', ARGV[1])
end
return {'ok'}
