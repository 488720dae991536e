-- Which reply of a released connection answers which request: by request id, and appends by their event numbers too,
-- since one acknowledgement may be for several.

if not ... then return end

local fields = require("penstock.segment_fields")
local reading = require("penstock.reading")

local pairs_of = {}

local MOST_OPEN = 10000 -- requests of one id that wait for an answer

local function ask(requests, pinfo, values)
    local id = tostring(values.request_id)
    local queue = requests[id] or {}
    requests[id] = queue
    local pair = { asked = pinfo.number, at = pinfo.rel_ts, event = values.last_event_number or values.event_number }
    queue[#queue + 1] = pair
    if #queue > MOST_OPEN then table.remove(queue, 1) end
    return pair
end

local function answer(requests, pinfo, values, acknowledges)
    local queue = requests[tostring(values.request_id)]
    if queue == nil or #queue == 0 then return nil end
    local pair = table.remove(queue, 1)
    pair.answered = pinfo.number
    if not acknowledges then return pair end
    while #queue > 0 and queue[1].event ~= nil and queue[1].event <= values.event_number do
        pair = table.remove(queue, 1)
        pair.answered = pinfo.number
    end
    return pair
end

-- Finds the pair of a message, and adds to the tree in which frame the other one is.
function pairs_of.add(tree, found, pinfo, tvb, offset, message, values)
    local pair
    if pinfo.visited then
        pair = found:recall(pinfo, tvb, offset, "pair")
    elseif values.request_id ~= nil and (message.from == "client" or message.from == "server") then
        found.requests = found.requests or {}
        if message.from == "client" then
            pair = ask(found.requests, pinfo, values)
        else
            pair = answer(found.requests, pinfo, values, message.name == "DataAppended")
        end
        if pair ~= nil then found:mark(pinfo, tvb, offset, "pair", pair) end
    end
    if pair == nil then return end
    if message.from == "client" then
        if pair.answered ~= nil then tree:add(fields.response_in, pair.answered):set_generated() end
        return
    end
    tree:add(fields.request_in, pair.asked):set_generated()
    tree:add(fields.time, reading.time(math.max(0, pinfo.rel_ts - pair.at))):set_generated()
end

return pairs_of
