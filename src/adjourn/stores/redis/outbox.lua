-- The outbox: of each app a hash of its notices, with a count of how often each was taken, and for each receiver a sorted
-- set of their ids, by when they are due. A notice is written with records (see write.lua).

local given = cmsgpack.unpack(ARGV[1])
local notices = given.notices
local now = given.now or server_time()

local function drop(index, id)
  redis.call('ZREM', index, id)
  redis.call('HDEL', notices, ':' .. id, 'attempt:' .. id)
end

if given.settle then
  local index, id = given.indexes[1], given.settle
  if tonumber(redis.call('HGET', notices, 'attempt:' .. id) or nil) ~= given.attempt then return 0 end
  if given.again then redis.call('ZADD', index, now + given.again, id) else drop(index, id) end
  return 1
end

local before = given.age and string.format('(%.17g', now - given.age) or now
local found = {}
for _, index in ipairs(given.indexes) do
  local due = redis.call('ZRANGEBYSCORE', index, '-inf', before, 'WITHSCORES', 'LIMIT', 0, given.limit)
  for place = 1, #due, 2 do
    table.insert(found, {index, due[place], tonumber(due[place + 1])})
  end
end
table.sort(found, function(one, other) return one[3] < other[3] end)

local taken = {}
for place = 1, math.min(#found, given.limit) do
  local index, id = found[place][1], found[place][2]
  local row = redis.call('HGET', notices, ':' .. id)
  if row and not given.age then
    local attempt = redis.call('HINCRBY', notices, 'attempt:' .. id, 1)
    redis.call('ZADD', index, now + given.ttl, id)
    table.insert(taken, {id, attempt, row})
  else
    drop(index, id)
    if given.age then table.insert(taken, id) end
  end
end
return taken
