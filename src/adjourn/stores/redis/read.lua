-- Read what is known about one session, all of it at one moment.

local row, _, _, log, _, branches, asked, waiting, inputs, queue = unpack(KEYS)
local query = cmsgpack.unpack(ARGV[1])

local values = redis.call('HGETALL', row)
local now = string.format('%.17g', query.now or server_time())
local stretches, questions, asking, given, records, point, bodies = false, {}, {}, {}, {}, false, {}
local function reply()
  return {now, values, stretches, questions, asking, given, records, point, bodies}
end
if #values == 0 then return reply() end

local head = {}
for position = 1, #values, 2 do
  head[values[position]] = values[position + 1]
end
local last = tonumber(head.pos) or -1

-- Branches, also where another part of the query names one

local names_one = query.asked or #query.records > 0 or (query.fold and query.fold[1])
if query.branches or names_one then stretches = redis.call('LRANGE', branches, 0, -1) end
local decoded = {}
for position, stretch in ipairs(names_one and stretches or {}) do
  local is_read, found = pcall(cmsgpack.unpack, stretch)
  if not (is_read and type(found) == 'table' and tonumber(found[2]) and tonumber(found[3])) then
    return redis.error_reply('DAMAGED ' .. branches)
  end
  decoded[position] = found
end

-- Return the position of a record on the log, by the name of its branch and its number on it.
local function locate(name, number)
  local finish = last
  for position = #decoded, 1, -1 do
    local stretch = decoded[position]
    if stretch[1] == name then
      local pos = stretch[2] + number - stretch[3]
      return pos >= stretch[2] and pos <= finish and pos or nil
    end
    finish = stretch[2] - 1
  end
end

-- Questions: of the head's branch, of another one that is named, or of all

local branch = head.branch_no
if query.asked then
  branch = nil
  for position, stretch in ipairs(decoded) do
    if stretch[1] == query.asked then branch = position - 1 end
  end
end
local wanted, prefix = {}, branch and branch .. '.'
local function want(member)
  if query.all_branches or string.sub(member, 1, #prefix) == prefix then wanted[member] = true end
end
if branch then
  for _, id in ipairs(query.questions) do
    wanted[prefix .. id] = true
  end
  for _, member in ipairs(query.waiting and redis.call('ZRANGE', waiting, 0, -1) or {}) do
    want(member)
  end
  for _, field in ipairs(query.every and redis.call('HKEYS', asked) or {}) do
    want(string.sub(field, 2))
  end
end
for member in pairs(wanted) do
  local question = redis.call('HGET', asked, ':' .. member)
  if question then
    table.insert(questions, {member, question, redis.call('ZSCORE', waiting, member)})
  end
end

-- Of which branches there are open ones, as their places say
if query.log then asking = redis.call('ZRANGEBYSCORE', waiting, '(-inf', '+inf') end

-- Inputs: some by their ids, and those that wait, up to a place in the queue

local names = {}
for _, id in ipairs(query.inputs) do
  names[id] = true
end
if query.queue then
  for _, id in ipairs(redis.call('ZRANGE', queue, 0, query.queue)) do
    names[id] = true
  end
end
for id in pairs(names) do
  local found = redis.call('HMGET', inputs, ':' .. id, 'body:' .. id)
  if found[1] then
    table.insert(given, {id, found[1], found[2]})
  end
end

-- Records, and all that fold to one point

for position, record in ipairs(query.records) do
  local pos = locate(record[1], record[2])
  records[position] = pos
    and {pos, unpack(redis.call('HMGET', log, ':' .. pos, 'full:' .. pos, 'events:' .. pos, 'body:' .. pos))} or false
end
if query.fold then
  local pos = last
  if query.fold[1] then pos = locate(query.fold[1], query.fold[2]) end
  point = pos and redis.call('HGET', log, ':' .. pos) or false
  local from = pos
  while point and from > 0 and redis.call('HEXISTS', log, 'full:' .. from) == 0 do
    from = from - 1
  end
  if point then
    for each = from, pos do
      table.insert(bodies, redis.call('HGET', log, 'body:' .. each))
    end
  end
end

return reply()
