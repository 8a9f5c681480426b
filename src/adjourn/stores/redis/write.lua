-- Carry out the operations of one write to one session: all of them or, if a guard does not hold, none.
--
-- What is written was computed in Python (see `_writes.py`, which says what holds between two writes); here are the
-- guards, the clock, and what can only be known at the moment of writing. Redis does not roll a script back, so
-- everything is checked before the first write: the guards, and that what the operations touch is of the right kind.
-- Indexes are not keys of the session; a plain server lets a script write them, too.

local row, _, listed = unpack(KEYS)
local given = cmsgpack.unpack(ARGV[1])
local now = given.now or server_time()
local serial

local function damaged(key) return redis.error_reply('DAMAGED ' .. key) end
local function key_of(place) return type(place) == 'number' and KEYS[place] or place end

-- Guards

local exists, old = redis.call('EXISTS', row) == 1, {}
if exists ~= given.exists then return false end
if exists then
  local names = {'owner', 'expires', 'touched', 'cancel', 'ttl', 'inputs', 'input_bytes', 'waiting'}
  for name in pairs(given.same) do names[#names + 1] = name end
  for place, value in ipairs(redis.call('HMGET', row, unpack(names))) do old[names[place]] = value or nil end
  for name, value in pairs(given.same) do
    if old[name] ~= value then return false end
  end
  for _, name in ipairs({'expires', 'touched', 'inputs', 'input_bytes', 'waiting'}) do
    if not tonumber(old[name]) then return damaged(row .. ' ' .. name) end
  end
  local live = old.owner ~= nil and old.owner ~= given.replaces and tonumber(old.expires) > now
  if given.live ~= nil and given.live ~= live then return false end
  if given.idle and tonumber(old.touched) >= now - given.idle then return false end
  local room = given.room
  if room and (tonumber(old.inputs) >= room[1] or tonumber(old.input_bytes) > room[2]) then return false end
else -- a session begins with nothing, also where one of the same id has lost its row, but not all of the rest
  leave_indexes(listed)
  redis.call('UNLINK', unpack(KEYS))
end

local function score(key, member) return tonumber(redis.call('ZSCORE', key, member) or nil) or -math.huge end
local holds = {
  new = function(key, field) return redis.call('HEXISTS', key, field) == 0 end,
  there = function(key, field) return redis.call('HEXISTS', key, field) == 1 end,
  open = function(key, member) return score(key, member) > -math.huge end,
  ['in time'] = function(key, member) return score(key, member) > now end,
  first = function(key, member) return redis.call('ZRANGE', key, 0, 0)[1] == member end,
  waits = function(key, member) return redis.call('ZSCORE', key, member) ~= false end,
}
for _, each in ipairs(given.expects) do
  if not holds[each[1]](KEYS[each[2]], each[3]) then return false end
end

-- What to do: some of it depends on what is there

local operations = {}
local function add(each) operations[#operations + 1] = each end

-- With the indexes of how it was decided, a question enters those of decisions by what it is in the inbox by, too.
local function leave(field, decided)
  local entry = {false, unpack(decided)}
  for place, member in pairs(places_of(redis.call('HGET', listed, field))) do
    add({'ZREM', place, member})
    local kind, name = string.match(place, '^adj:inbox:(%l+:)(%l*)')
    if #decided > 0 and kind and (name == '' or name == 'app' or name == 'user' or name == 'agent') then
      entry[1], entry[#entry + 1] = member, 'adj:decided:' .. string.sub(place, 11)
    end
  end
  add({'HDEL', 3, field})
  if not entry[1] then return end
  for place = 2, #entry do add({'ZADD', entry[place], 0, entry[1]}) end
  add({'HSET', 3, 'd:' .. field, cmsgpack.pack(entry)})
end

for _, each in ipairs(given.ops) do
  if each[1] ~= 'LEAVE' then
    add(each)
  elseif each[3] then
    leave(each[3], each[4])
  else -- all questions that are open, or also those that are decided
    for _, field in ipairs(redis.call('HKEYS', listed)) do
      if field ~= '' and (each[4] or string.sub(field, 1, 2) ~= 'd:') then leave(field, {}) end
    end
  end
end
for _, each in ipairs(given.counted) do
  local name, more, above, zero = unpack(each)
  if more ~= 0 then add({'HINCRBY', 1, name, string.format('%d', more)}) end
  for _, also in ipairs(old[name] + more > 0 and above or zero) do add(also) end
end

local kinds = {
  HSET = 'hash', HDEL = 'hash', HINCRBY = 'hash', PREPEND = 'hash', FILL = 'hash', ENTER = 'hash', RPUSH = 'list', SADD = 'set',
  ZADD = 'zset', ZREM = 'zset', ZREMRANGEBYSCORE = 'zset', FOLLOW = 'zset', INCR = 'string',
}
local checked = {}
local function check(key, kind)
  checked[key] = checked[key] or redis.call('TYPE', key).ok
  return not kind or checked[key] == kind or checked[key] == 'none'
end
for _, each in ipairs(operations) do
  local command, key = each[1], key_of(each[2])
  if not check(key, kinds[command]) then return damaged(key) end
  if command == 'FOLLOW' and not check(KEYS[each[4]], 'zset') then return damaged(KEYS[each[4]]) end
  if command == 'INCR' and not string.match(redis.call('GET', key) or '0', '^%d+$') then return damaged(key) end
  if command == 'PREPEND' and redis.call('HEXISTS', key, each[3]) == 0 then return damaged(key) end
  for group = 6, command == 'ENTER' and #each or 0 do
    for place = 2, #each[group] do
      if not check(each[group][place], 'zset') then return damaged(each[group][place]) end
    end
  end
end
if (given.ttl or old.ttl) and not (check('adj:ends', 'zset') and check(listed, 'hash')) then return damaged('adj:ends') end

-- Writing: from here on nothing fails

-- What an operation is given: text, a number for the time so many seconds from now, true for the number that was given
-- out last, or the parts of a packed row, where times and numbers stand as msgpack has them.
local function value(of)
  if type(of) == 'number' then return string.format('%.17g', now + of) end
  if of == true then return serial end
  if type(of) ~= 'table' then return of end
  local parts = {}
  for place, part in ipairs(of) do
    if type(part) == 'number' then part = '\203' .. struct.pack('>d', now + part) end
    if part == true then part = '\207' .. struct.pack('>I8', serial) end
    parts[place] = part
  end
  return table.concat(parts)
end

local carry_out = {
  INCR = function(key) serial = redis.call('INCR', key) end,
  PREPEND = function(key, field, change) redis.call('HSET', key, field, value(change) .. redis.call('HGET', key, field)) end,
  FILL = function(key, field, first) -- only an empty one
    if redis.call('HGET', key, field) == '' then redis.call('HSET', key, field, first) end
  end,
  SHOW = function(key, before, after) redis.call('SET', key, before .. readable(now) .. after) end,
  FOLLOW = function(key, member, place) -- an entry of an index that has the score of the first of another set
    local first = redis.call('ZRANGE', KEYS[place], 0, 0, 'WITHSCORES')[2]
    if first then redis.call('ZADD', key, first, member) else redis.call('ZREM', key, member) end
  end,
  ENTER = function(key, field, number, rest, ...)
    local entry = {string.format('%016d', number == '' and serial or number) .. rest}
    for _, group in ipairs({...}) do
      for place = 2, #group do
        redis.call('ZADD', group[place], value(group[1]), entry[1])
        entry[#entry + 1] = group[place]
      end
    end
    redis.call('HSET', key, field, cmsgpack.pack(entry))
  end,
}
for _, each in ipairs(operations) do
  local command, key = each[1], key_of(each[2])
  if carry_out[command] then
    carry_out[command](key, unpack(each, 3))
  else
    local arguments = {}
    for place = 3, #each do arguments[place - 2] = value(each[place]) end
    redis.call(command, key, unpack(arguments))
  end
end

-- Until when the session is kept. What others need to take it out of the indexes stays a while longer.
local ttl = given.ttl or tonumber(old.ttl)
if ttl and given.touches then
  local owner, expires = unpack(redis.call('HMGET', row, 'owner', 'expires'))
  local kept = math.max(ttl, owner and expires - now or 0)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, math.ceil(kept * 1000))
  end
  redis.call('PEXPIRE', listed, math.ceil((kept + 2592000) * 1000))
  redis.call('ZADD', 'adj:ends', server_time() + kept, row)
end

-- Listeners hear of it as soon as it is written. Without the right to publish, they look now and then.
if given.hint then redis.pcall('PUBLISH', unpack(given.hint)) end
return {string.format('%.17g', now), old.cancel or false, old.inputs or '0'}
