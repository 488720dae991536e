-- What the dissectors over TCP have in common: ports that can be changed, messages that TCP cuts anywhere, and that no
-- bytes at all make an error of Lua.

if not ... then return end

local conversations = require("penstock.conversations")

local tcp = {}

local by_port = DissectorTable.get("tcp.port")

-- Registers `proto` for the ports of its preferences with these names, and keeps to them when they change. Gives a
-- function that says whether a port is one of them.
function tcp.ports(proto, preferences)
    local current, previous = {}, {}
    local function registered(port)
        for name in pairs(current) do
            for first, last in current[name]:gmatch("(%d+)%-?(%d*)") do
                local highest = last == "" and first or last
                if port >= tonumber(first) and port <= tonumber(highest) then return true end
            end
        end
        return false
    end
    local function renew()
        for name in pairs(preferences) do
            local wanted = tostring(proto.prefs[name])
            if wanted ~= previous[name] then
                if current[name] ~= nil and current[name] ~= "" then by_port:remove(current[name], proto) end
                if wanted ~= "" then by_port:add(wanted, proto) end
                current[name], previous[name] = wanted, wanted
            end
        end
    end
    for name, ports in pairs(preferences) do
        current[name], previous[name] = ports, ports
        by_port:add(ports, proto)
    end
    proto.prefs_changed = renew
    return registered
end

-- Sets or adds to what the packet list says of a frame, which may hold several messages.
function tcp.info(pinfo, name, text)
    pinfo.cols.protocol = name
    if pinfo.private["penstock_info"] == nil then
        pinfo.private["penstock_info"] = "yes"
        pinfo.cols.info = text
    else
        pinfo.cols.info:append("; " .. text)
    end
end

-- Takes the messages of a Tvb one by one. `one(offset)` dissects what stands there and gives its length, or nil and how
-- many bytes are missing until its end. Where that is not known it says nil, and not a smaller number: Wireshark's
-- second pass loses messages for which more was asked twice in one segment. If more is not available, `cut(offset)`
-- shows what there is.
function tcp.each(tvb, pinfo, one, cut)
    local offset = 0
    while offset < tvb:len() do
        local taken, missing = one(offset)
        if taken ~= nil then
            offset = offset + taken
        elseif pinfo.can_desegment > 0 and tvb:len() == tvb:reported_len() then
            pinfo.desegment_offset = offset
            pinfo.desegment_len = missing or DESEGMENT_ONE_MORE_SEGMENT
            break
        else
            cut(offset)
            break
        end
    end
    return tvb:len()
end

-- Calls one of Wireshark's dissectors in our place, so that it may ask for more segments; `whole`: it may not. What it
-- throws for bytes that it cannot read, and Wireshark catches elsewhere, is shown by `malformed`, an expert info.
function tcp.hand_over(dissector, tvb, pinfo, tree, whole, proto, malformed)
    local can = pinfo.can_desegment
    pinfo.can_desegment = whole and 0 or can + 1 -- one is taken away for each dissector on the way
    local fine = pcall(dissector.call, dissector, tvb, pinfo, tree)
    pinfo.can_desegment = can
    if not fine then tree:add(proto, tvb()):add_proto_expert_info(malformed) end
    return tvb:len()
end

-- The dissector to be used for a frame: the one that the recorder's comment calls for, even where a port or a
-- heuristic called another.
function tcp.chosen(proto, found)
    local routed = conversations.routed(found)
    return routed ~= nil and routed ~= proto and routed or nil
end

return tcp
