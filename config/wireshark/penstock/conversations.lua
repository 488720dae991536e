-- TCP connections: what the recorder's comments say of them, who is the client, and what dissectors remember of them.
--
-- Wireshark dissects each frame once in order, and again whenever it likes. What depends on earlier frames is found out
-- in the first pass, and remembered by the place in the frame (`mark` and `recall`). The first pass of `tshark -2`
-- without a filter has no fields to be looked at: there a conversation is known by its ends, and comments are not seen.

if not ... then return end

local conversations = {}

local MOST_NOTES = 20 -- of one kind, shown with each frame of a conversation

local stream_of = Field.new("tcp.stream")
local comments_of = Field.new("frame.comment")
local syn_of = Field.new("tcp.flags.syn")
local ack_of = Field.new("tcp.flags.ack")

local recorder = Proto("penstock", "Penstock recorder")
local connection_field = ProtoField.uint64("penstock.connection", "Connection", base.DEC, nil, nil,
    "The gateway's number of it")

-- The other keys of the recorder's comments that are shown with each frame of the conversation, in this order.
local SHOWN = {
    { "side", "Side", "front: a client's; back: the gateway's with a server" },
    { "name", "Listener or back", "By its name in the configuration" },
    { "protocol", "Protocol", "By the configuration" },
    { "tls", "TLS", "Whether the bytes stood inside TLS" },
    { "route", "Route", "A route that was taken" },
    { "stream", "Stream", "A stream that was spoken of" },
    { "identity", "Identity", "Who the client is" },
    { "back", "Back", "A back that was used" },
}
local shown_fields, all_fields = {}, { connection_field }
for _, row in ipairs(SHOWN) do
    local field = ProtoField.string("penstock." .. row[1], row[2], base.NONE, row[3])
    shown_fields[row[1]] = field
    all_fields[#all_fields + 1] = field
end
recorder.fields = all_fields

local by_stream, by_ends = {}, {}
local routes = {}

function recorder.init()
    by_stream, by_ends = {}, {}
end

-- Says which dissector is for conversations whose comment has this protocol.
function conversations.route(protocol, dissector)
    routes[protocol] = dissector
end

local Conversation = {}
Conversation.__index = Conversation

local function mark_of(pinfo, tvb, offset, what)
    return what .. pinfo.number .. ":" .. (tvb:offset() + offset)
end

-- Remembers a value for a place of this frame.
function Conversation:mark(pinfo, tvb, offset, what, value)
    self.marks[mark_of(pinfo, tvb, offset, what)] = value
end

-- What was remembered for a place of this frame.
function Conversation:recall(pinfo, tvb, offset, what)
    return self.marks[mark_of(pinfo, tvb, offset, what)]
end

-- Whether the sender of this frame is the one that opened the connection. Where the capture does not have its
-- beginning, who speaks to one of the known ports is the client, else who is seen first.
function Conversation:from_client(pinfo, is_server_port)
    local source = tostring(pinfo.src) .. " " .. pinfo.src_port
    if self.client == nil then
        local reply = is_server_port(pinfo.src_port) and not is_server_port(pinfo.dst_port)
        self.client = reply and tostring(pinfo.dst) .. " " .. pinfo.dst_port or source
    end
    return source == self.client
end

local function stream_number()
    local all = { stream_of() }
    return #all > 0 and all[#all].value or nil
end

local function ends_of(pinfo)
    local one, other = tostring(pinfo.src) .. " " .. pinfo.src_port, tostring(pinfo.dst) .. " " .. pinfo.dst_port
    return one < other and one .. " " .. other or other .. " " .. one
end

local function conversation(pinfo)
    local stream, ends = stream_number(), nil
    local found = stream ~= nil and by_stream[stream] or nil
    if found == nil then
        ends = ends_of(pinfo)
        if stream == nil or pinfo.visited then found = by_ends[ends] end
    end
    if found == nil then
        found = setmetatable({ marks = {}, said = {} }, Conversation)
        by_ends[ends] = found
    end
    if stream ~= nil then by_stream[stream] = found end
    return found
end

-- Whether fields of other dissectors can be looked at in this pass.
function conversations.has_fields()
    return stream_number() ~= nil
end

local ESCAPES = { n = "\n", t = "\t", r = "\r", b = "\b", f = "\f" }

-- The text of a JSON string without its quotes.
local function unquoted(text)
    return (text:gsub("\\(.)(%x?%x?%x?%x?)", function(letter, digits)
        if letter == "u" and #digits == 4 then return "\\u" .. digits end
        return (ESCAPES[letter] or letter) .. digits
    end))
end

-- The pairs of `penstock connection=12 name=listeners.s3p stream="a b"`; nil for comments of others.
local function pairs_in(comment)
    if comment:sub(1, 20) ~= "penstock connection=" then return nil end
    local found, at = {}, 9
    while true do
        local _, stop, key, value = comment:find("^ ([a-z_]+)=([%w._:/@+-]+)", at)
        if key == nil then
            local start
            _, start, key = comment:find('^ ([a-z_]+)="', at)
            if key == nil then return found end
            stop = start
            repeat
                stop = comment:find('[\\"]', stop + 1)
                local escaped = stop ~= nil and comment:sub(stop, stop) == "\\"
                if escaped then stop = stop + 1 end
            until not escaped
            if stop == nil then return found end
            value = unquoted(comment:sub(start + 1, stop - 1))
        end
        found[key] = value
        at = stop + 1
    end
end

local function add_said(found, key, value)
    local values = found.said[key] or {}
    found.said[key] = values
    if values[value] or #values >= MOST_NOTES then return end
    values[value] = true
    values[#values + 1] = value
end

local function take_comments(found, pinfo)
    for _, comment in ipairs({ comments_of() }) do
        local said = pairs_in(tostring(comment.value))
        for key, value in pairs(said or {}) do
            add_said(found, key, value)
        end
        if said ~= nil and said.side ~= nil then -- its first packet is always one of its client
            found.client = tostring(pinfo.src) .. " " .. pinfo.src_port
            found.began = said.client_offset == "0" and said.server_offset == "0"
        end
    end
end

-- The conversation of the frame that is being dissected.
function conversations.current(pinfo)
    local found = conversation(pinfo)
    if found.seen ~= pinfo.number then
        found.seen = pinfo.number
        take_comments(found, pinfo)
    end
    return found
end

-- The dissector that the recorder's comment calls for, or nil.
function conversations.routed(found)
    local protocol = found.said.protocol
    return protocol ~= nil and routes[protocol[1]] or nil
end

local function remember_client(found, pinfo)
    local syn, ack = syn_of(), ack_of()
    if syn == nil or not syn.value then return end
    local answer = ack ~= nil and ack.value
    local host = answer and pinfo.dst or pinfo.src
    found.client = tostring(host) .. " " .. (answer and pinfo.dst_port or pinfo.src_port)
    if found.began == nil then found.began = true end
end

local function add_tree(found, tree)
    local connection = found.said.connection and found.said.connection[1]
    if connection == nil or not connection:match("^%d+$") then return end
    local item = tree:add(recorder)
    item:set_text("Penstock recorder, connection " .. connection)
    item:set_generated()
    item:add(connection_field, UInt64.new(tonumber(connection))):set_generated()
    for _, row in ipairs(SHOWN) do
        for _, value in ipairs(found.said[row[1]] or {}) do
            item:add(shown_fields[row[1]], value):set_generated()
        end
    end
end

-- Runs after all other dissectors, for every frame, also for those without data: the first of a conversation is one,
-- and its comment decides who dissects the others, whatever their ports.
function recorder.dissector(_, pinfo, tree)
    if stream_number() == nil then return end
    local found = conversations.current(pinfo)
    if not pinfo.visited then remember_client(found, pinfo) end
    local routed = conversations.routed(found)
    if routed ~= nil and not found.routed then
        found.routed = true
        pinfo.conversation = routed
    end
    add_tree(found, tree)
end

register_postdissector(recorder)

-- A recording that begins in the middle of a conversation: its comment stands at a frame with data, which is dissected
-- before the post-dissector sees it.
recorder:register_heuristic("tcp", function(tvb, pinfo, tree)
    local routed = conversations.routed(conversations.current(pinfo))
    if routed == nil then return false end
    pinfo.conversation = routed
    routed.dissector(tvb, pinfo, tree)
    return true
end)

return conversations
