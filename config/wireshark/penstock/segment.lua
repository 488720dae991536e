-- Pravega's segment protocol, as released and as its draft had it: which one, the first message of the client says.

if not ... then return end

local body = require("penstock.segment_body")
local conversations = require("penstock.conversations")
local events = require("penstock.segment_events")
local fields = require("penstock.segment_fields")
local pairs_of = require("penstock.segment_pairs")
local reading = require("penstock.reading")
local tables = require("penstock.segment_tables")
local tcp = require("penstock.tcp")

local segment = fields.proto

local HEADER = 8
local HELLO = -127
local NEWEST = 16 -- wire versions from here on have today's layouts
local LONGEST_PARTIALS = 16 * 1024 * 1024 + HEADER
local WINDOW = 65536 -- zero bytes are looked for so far ahead
local BEGIN, END = 0, 2

segment.prefs.ports = Pref.range("TCP ports", "12345", "Ports of segment stores", 65535)
segment.prefs.dialect = Pref.enum("Dialect", 0, "What is spoken on all connections",
    { { 1, "By the client's first message", 0 }, { 2, "Released", 1 }, { 3, "Draft", 2 } }, false)
local FORCED = { [1] = "released", [2] = "draft" }

local is_server_port

-- What is known of a connection's two directions.
local function state_of(found)
    found.segment = found.segment
        or { version = NEWEST, client = { left = 0, parts = {} }, server = { left = 0, parts = {} } }
    return found.segment
end

local function read_body(tvb, at, length, tree, message, version)
    local cursor = { tvb = tvb, at = at, stop = at + length, version = version }
    local values = {}
    local fine, problem = pcall(body.read, cursor, tree, message, values)
    if fine then return values, nil end
    if type(problem) ~= "table" then error(problem, 0) end
    return values, problem
end

local function header(tvb, offset)
    return tvb(offset, 4):int(), tvb(offset + 4, 4):int()
end

-- Whether what stands there is a message of a dialect, all of it and nothing else. nil: cannot be told yet.
local function fits(dialect, tvb, offset)
    local left = tvb:len() - offset
    if left < HEADER then return nil end
    local kind, length = header(tvb, offset)
    local message = tables[dialect][kind]
    if message == nil or length < 0 or length > tables.longest.length then return false end
    if left < HEADER + length then return nil end
    local cursor = { tvb = tvb, at = offset + HEADER, stop = offset + HEADER + length, version = NEWEST }
    return (pcall(body.read, cursor, body.silent, message, {})) and cursor.at == cursor.stop
end

-- The dialect, chosen once. nil: cannot be told yet.
local function dialect_of(found, state, tvb, offset, from_client)
    if FORCED[segment.prefs.dialect] then return FORCED[segment.prefs.dialect] end
    if state.dialect == nil then
        if tvb:len() - offset < 4 then return nil end
        if tvb(offset, 4):int() == HELLO then
            state.dialect = "released"
        elseif found.began and from_client then
            state.dialect = "draft"
        else -- the beginning is not in the capture, and this may be the middle of a message
            for _, dialect in ipairs({ "released", "draft" }) do
                local fine = fits(dialect, tvb, offset)
                if fine == nil then return nil end
                if fine then
                    state.dialect = dialect
                    return dialect
                end
            end
            return "released"
        end
    end
    return state.dialect
end

local function add_malformed(tree, tvb, offset, text)
    tree:add(fields.undecoded, tvb(offset)):add_proto_expert_info(fields.malformed, text)
end

local SHOWN = { "segment", "target", "offset", "event_number", "last_event_number", "connection_offset",
    "connection_offset_ack_level", "error_code", "message" }

local function info_of(message, values)
    local words = { message.name }
    for _, name in ipairs(SHOWN) do
        local value = values[name]
        if value ~= nil then
            local text = reading.shown(tostring(value), 100)
            words[#words + 1] = name == "segment" and text or name .. "=" .. text
        end
    end
    return table.concat(words, " ")
end

-- An AppendBlock may end with the beginning of an event that goes on in its AppendBlockEnd.
local function add_content(place, branch, tvb, message, values)
    local data = values.data
    if message.name == "Event" or data == nil or data.length == 0 then return end
    local stop = data.start + data.length
    local found, pinfo, offset = place.found, place.pinfo, place.offset
    if message.name == "AppendBlock" then
        local begun = events.add_all(branch, tvb, data.start, stop, true)
        if not pinfo.visited then place.state.begun = begun end
    elseif message.name == "AppendBlockEnd" then
        if not pinfo.visited then
            local begun = place.state.begun
            place.state.begun = nil
            found:mark(pinfo, tvb, offset, "begun", begun)
        end
        local begun = found:recall(pinfo, tvb, offset, "begun")
        if begun == nil then
            events.add_all(branch, tvb, data.start, stop, false)
        else
            branch:add(fields.event_part, tvb(data.start, data.length)):append_text(" (the rest of a PartialEvent)")
            local whole = reading.tvb(begun .. tvb(data.start, data.length):raw(), "Event")
            events.add_all(branch, whole, 0, whole:len(), false)
        end
    elseif message.name == "SegmentRead" then
        events.add_all(branch, tvb, data.start, stop, false)
    end
end

-- What a message means for those that follow it in its direction.
local function take(state, side, message, values)
    if message.name == "Hello" and values.high_version ~= nil then
        state.version = math.min(state.version, values.high_version)
    elseif message.name == "BeginAppendBlock" and values.length ~= nil then
        side.left = math.max(0, values.length)
    end
end

local add_message

-- The pieces of a message; the last one has all of it below.
local function add_partial(place, branch, tvb, values)
    local side, found, pinfo, offset = place.side, place.found, place.pinfo, place.offset
    if not pinfo.visited then
        if values.part == BEGIN then side.parts, side.size = {}, 0 end
        local data = values.data
        side.size = (side.size or 0) + data.length
        if data.length > 0 and side.size <= LONGEST_PARTIALS then
            side.parts[#side.parts + 1] = tvb(data.start, data.length):raw()
        end
        if values.part == END and side.size <= LONGEST_PARTIALS then
            found:mark(pinfo, tvb, offset, "whole", table.concat(side.parts))
            side.parts, side.size = {}, 0
        end
    end
    local whole = found:recall(pinfo, tvb, offset, "whole")
    if whole == nil or #whole < HEADER then return nil end
    local inner = reading.tvb(whole, "Message of Partials")
    local kind, length = header(inner, 0)
    local message = tables.draft[kind]
    if message == nil or message.name == "Partial" or length ~= #whole - HEADER then
        add_malformed(branch, inner, 0, "the Partials are not one message")
        return nil
    end
    return add_message(place, branch, inner, 0, message, length, true)
end

local ALLOWED = { client = true, both = true, server = false, inside = false }

local function check_place(place, branch, message, inside)
    local allowed
    if message.from == "inside" then
        allowed = inside
    elseif message.from == "both" then
        allowed = true
    else
        allowed = ALLOWED[message.from] == place.from_client
    end
    if not allowed then branch:add_proto_expert_info(fields.misplaced, message.name .. " is out of place here") end
end

-- Adds one whole message. `inside`: of a block, or of Partials. Gives what the packet list says of it.
add_message = function(place, tree, tvb, offset, message, length, inside)
    local branch = tree:add(segment, tvb(offset, HEADER + length))
    branch:add(fields.command, tvb(offset, 4), message.name)
    branch:add(fields.type, tvb(offset, 4))
    branch:add(fields.length, tvb(offset + 4, 4))
    branch:add(fields.dialect, place.dialect):set_generated()
    check_place(place, branch, message, inside)
    local values, problem = read_body(tvb, offset + HEADER, length, branch, message, place.state.version)
    local info = info_of(message, values)
    branch:append_text(", " .. info)
    if problem ~= nil then
        add_malformed(branch, tvb, math.min(problem.at, tvb:len() - 1), problem.wrong)
        return info .. " [malformed: " .. problem.wrong .. "]"
    end
    if not place.pinfo.visited then take(place.state, place.side, message, values) end
    add_content(place, branch, tvb, message, values)
    if place.dialect == "released" then
        pairs_of.add(branch, place.found, place.pinfo, tvb, offset, message, values)
    elseif message.name == "Partial" then
        local whole = add_partial(place, branch, tvb, values)
        if whole ~= nil then info = info .. ": " .. whole end
    end
    return info
end

local function add_rest(place, tree, tvb, offset, text)
    local branch = tree:add(segment, tvb(offset))
    local found, side, pinfo = place.found, place.side, place.pinfo
    if not pinfo.visited then found:mark(pinfo, tvb, offset, "middle", not found.began and not side.known) end
    if found:recall(pinfo, tvb, offset, "middle") then
        branch:append_text(", the end of a message that began before the capture")
        branch:add(fields.undecoded, tvb(offset)):add_proto_expert_info(fields.cut)
        tcp.info(pinfo, "Pravega", "[the end of a message]")
        return tvb:len() - offset
    end
    add_malformed(branch, tvb, offset, text)
    tcp.info(place.pinfo, "Pravega", "[malformed: " .. text .. "]")
    place.side.left = 0
    return tvb:len() - offset
end

-- A message that begins at `offset`. Gives its length, or nil and the missing bytes.
local function whole_message(place, tree, tvb, offset, most)
    local left = tvb:len() - offset
    if left < HEADER then return nil end
    local kind, length = header(tvb, offset)
    local message = tables[place.dialect][kind]
    if message == nil then return add_rest(place, tree, tvb, offset, "unknown message type " .. kind) end
    if length < 0 or length > tables.longest.length or (most ~= nil and HEADER + length > most) then
        return add_rest(place, tree, tvb, offset, message.name .. " of " .. length .. " bytes")
    end
    if most ~= nil and message.name ~= "Event" and message.name ~= "Partial" then
        return add_rest(place, tree, tvb, offset, message.name .. " inside a block")
    end
    if left < HEADER + length then return nil, HEADER + length - left end
    place.side.known = true
    if message.name == "Event" and most ~= nil then
        local branch = tree:add(segment, tvb(offset, HEADER + length))
        branch:add(fields.command, tvb(offset, 4), "Event")
        branch:add(fields.type, tvb(offset, 4))
        branch:add(fields.length, tvb(offset + 4, 4))
        branch:add(fields.dialect, place.dialect):set_generated()
        branch:append_text(", Event of a block")
        events.add(branch, tvb, offset, length)
        tcp.info(place.pinfo, "Pravega", "Event")
    else
        place.offset = offset
        local info = add_message(place, tree, tvb, offset, message, length, most ~= nil)
        tcp.info(place.pinfo, "Pravega", info)
    end
    return HEADER + length
end

local function add_zeros(place, tree, tvb, offset, size, ends)
    local branch = tree:add(segment, tvb(offset, size))
    local text = ends and "Padding or empty events at the end of a block" or "Empty events"
    branch:append_text(", " .. text)
    branch:add(fields.padding, tvb(offset, size), size)
    tcp.info(place.pinfo, "Pravega", text)
    return size
end

-- What stands in a draft block, of which `left` bytes are still to come: events, Partials, and zero bytes, which are
-- empty events or padding. Gives the length, or nil and the missing bytes.
local function block_content(place, tree, tvb, offset, left)
    local here = tvb:len() - offset
    if here < math.min(HEADER, left) then return nil end
    local data = tvb:raw(offset, math.min(here, left, WINDOW))
    local zeros = (data:find("[^\0]") or #data + 1) - 1
    if zeros == left then return add_zeros(place, tree, tvb, offset, zeros, true) end
    if left < HEADER then
        return add_rest(place, tree, tvb, offset, left .. " bytes at the end of a block are no message")
    end
    if zeros >= HEADER then return add_zeros(place, tree, tvb, offset, zeros - zeros % HEADER, false) end
    return whole_message(place, tree, tvb, offset, left)
end

local function dissect(tvb, pinfo, tree, found)
    local state = state_of(found)
    local from_client = found:from_client(pinfo, is_server_port)
    local side = from_client and state.client or state.server
    local place = { found = found, state = state, side = side, pinfo = pinfo, from_client = from_client }

    local function one(offset)
        place.dialect = dialect_of(found, state, tvb, offset, from_client)
        if place.dialect == nil then return nil end
        local left = side.left
        if pinfo.visited then left = found:recall(pinfo, tvb, offset, "left") or 0 end
        if left == 0 then return whole_message(place, tree, tvb, offset) end
        local taken, more = block_content(place, tree, tvb, offset, left)
        if taken == nil then return nil, more end
        if not pinfo.visited then
            found:mark(pinfo, tvb, offset, "left", left)
            if side.left == left then side.left = math.max(0, left - taken) end
        end
        return taken
    end

    local function cut(offset)
        local branch = tree:add(segment, tvb(offset))
        branch:add(fields.undecoded, tvb(offset)):add_proto_expert_info(fields.cut)
        tcp.info(pinfo, "Pravega", "[cut]")
    end

    return tcp.each(tvb, pinfo, one, cut)
end

function segment.dissector(tvb, pinfo, tree)
    local found = conversations.current(pinfo)
    local other = tcp.chosen(segment, found)
    if other ~= nil then return other.dissector(tvb, pinfo, tree) end
    return dissect(tvb, pinfo, tree, found)
end

local FIRST = { [1] = true, [9] = true } -- what a client of the draft begins with

local function looks_like_it(tvb)
    if tvb:len() < HEADER + HEADER then return false end
    local kind, length = header(tvb, 0)
    if kind == HELLO then return length == HEADER and tvb(8, 4):int() >= tvb(12, 4):int() and tvb(8, 4):int() < 1000 end
    return FIRST[kind] and HEADER + length == tvb:len() and fits("draft", tvb, 0) == true
end

-- On other ports: what a client says first.
local function guess(tvb, pinfo, tree)
    local found = conversations.current(pinfo)
    if not looks_like_it(tvb) then return false end
    pinfo.conversation = segment
    dissect(tvb, pinfo, tree, found)
    return true
end

is_server_port = tcp.ports(segment, { ports = "12345" })
segment:register_heuristic("tcp", guess)

return segment
