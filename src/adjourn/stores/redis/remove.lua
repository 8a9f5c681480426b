-- Remove what is left of a session whose row is gone, or all of one that was found damaged. Nothing here can fail half
-- done: what one key holds does not keep the others.

local given = cmsgpack.unpack(ARGV[1])
local row, _, listed = unpack(KEYS)
local kind = redis.call('TYPE', row).ok
if kind ~= 'none' and not given.is_damaged then return 0 end
local user = kind == 'hash' and redis.call('HGET', row, 'user') or nil
if kind ~= 'none' and given.user and given.user ~= user then return 0 end

leave_indexes(listed)
for _, each in ipairs(given.places) do redis.pcall('ZREM', each[1], each[2]) end
if user then redis.pcall('ZREM', given.of_users .. user, given.session) end
redis.pcall('ZREM', 'adj:ends', row)
return redis.call('UNLINK', unpack(KEYS))
