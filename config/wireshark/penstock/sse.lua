-- Server-sent events: the lines of each event, and the JSON in its data.

if not ... then return end

local flows = require("penstock.flows")
local reading = require("penstock.reading")

local sse = {}

local proto = Proto("sse", "Server-Sent Events")
sse.proto = proto

local f = {
    event = ProtoField.string("sse.event", "Event"),
    id = ProtoField.string("sse.id", "Id"),
    data = ProtoField.string("sse.data", "Data"),
    retry = ProtoField.string("sse.retry", "Retry"),
    comment = ProtoField.string("sse.comment", "Comment"),
    part = ProtoField.bytes("sse.part", "Part of an event", base.NONE, "It goes on, and is shown, in a later piece"),
}
proto.fields = { f.event, f.id, f.data, f.retry, f.comment, f.part }

local json = Dissector.get("json")

-- The length of the event at a place, with the blank line behind it.
local function measure(data, at)
    local _, stop = data:find("\r?\n\r?\n", at)
    if stop == nil then return nil, #data - at + 2 end
    return stop - at + 1
end

local function add_event(tree, tvb, start, length, pinfo)
    local branch = tree:add(proto, tvb(start, length))
    local text = tvb(start, length):raw()
    local at = 1
    local kind = "message"
    while at <= #text do
        local stop, following = text:find("\r?\n", at)
        local name, space, value = text:sub(at, (stop or #text + 1) - 1):match("^([^:]*):?( ?)(.*)$")
        local field = name == "" and f.comment or f[name]
        if field ~= nil and field ~= f.part and value ~= "" then
            local place = at + #name + 1 + #space
            local range = tvb(start + place - 1, #value)
            branch:add(field, range, reading.shown(value, 65535))
            if name == "event" then kind = reading.shown(value, 100) end
            if name == "data" and json ~= nil and value:match("^[%[{].*[%]}]$") then
                json:call(range:tvb(), pinfo, branch)
            end
        end
        at = (following or #text) + 1
    end
    branch:append_text(", " .. kind)
    return "event " .. kind
end

-- Adds the events that a piece of a response completes. Gives what the packet list says of them.
function sse.add(found, flow, pinfo, tree, tvb, start, length)
    local infos = {}
    local function add(whole, at, size)
        infos[#infos + 1] = add_event(tree, whole, at, size, pinfo)
    end
    local rest, at = flows.feed(found, flow, pinfo, tvb, start, length, measure, add)
    if rest > 0 then tree:add(proto, tvb(at, rest)):append_text(", part of an event"):add(f.part, tvb(at, rest)) end
    return table.concat(infos, "; ")
end

return sse
