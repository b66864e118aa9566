#!lua flags=allow-oom
-- Let go of a blob, unless an entry names it. KEYS: meta, blobs, needs, named. ARGV: key.
local meta, blobs, needs, named = unpack(KEYS)
if not redis.call('HGET', meta, 'seq') then
  return {'gone'}
end
local _, named_by = all_needs(needs)
drop_named(named, blobs, ARGV[1], named_by)
return {'ok'}
