-- Take a session whose row is gone or damaged out of the indexes, as far as `listed` says where it is. What is damaged
-- there, too, is passed over: its entries are dropped when they are met.

local function leave_sessions(index, session, user)
  for _, status in ipairs({'queued', 'running', 'waiting', 'failed', 'cancelled', 'done'}) do
    redis.pcall('ZREM', index .. 'sessions=' .. status, session)
  end
  redis.pcall('ZREM', index .. 'sessions', session)
  redis.pcall('ZREM', index .. 'due', session)
  if user then redis.pcall('ZREM', index .. 'sessions/' .. user, session) end
end

local function leave_indexes(listed)
  local fields = redis.pcall('HGETALL', listed)
  for position = 1, #fields, 2 do
    local is_read, entry = pcall(cmsgpack.unpack, fields[position + 1])
    if not is_read or type(entry) ~= 'table' then entry = {} end
    if fields[position] ~= '' then
      for term = 2, #entry do
        redis.pcall('ZREM', 'adj:inbox:' .. tostring(entry[term]), tostring(entry[1]))
      end
    elseif entry[2] then
      leave_sessions(entry[1], entry[2], entry[3])
    end
  end
end

