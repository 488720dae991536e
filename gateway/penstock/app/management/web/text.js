// Numbers, times and bytes as text.

export function size(bytes) {
  let amount = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) {
      return unit === "B" ? `${Math.round(amount)} B` : `${amount.toFixed(1)} ${unit}`;
    }
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

export const count = (number) => (number < 10 && number % 1 ? number.toFixed(1) : Math.round(number).toLocaleString("en"));

export function age(ms) {
  const seconds = Math.max(0, ms / 1000);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) {
      return `${Math.round(seconds / length)} ${unit}`;
    }
  }
  return `${Math.round(seconds)} s`;
}

export function duration(ns) {
  for (const [unit, length] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (ns >= length) {
      return `${(ns / length).toFixed(1)} ${unit}`;
    }
  }
  return `${ns} ns`;
}

export const milliseconds = (ms) => (ms === null || ms === undefined ? "–" : duration(ms * 1e6));

// A time in UTC; far ones, which clients may claim, as a number.
export const utc = (ms) => (Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString().replace("T", " ") : String(ms));

export function bytesOf(value, name = "body") {
  if (value[name] !== undefined) {
    return new TextEncoder().encode(value[name]);
  }
  return Uint8Array.from(atob(value[`${name}_base64`] ?? ""), (sign) => sign.charCodeAt(0));
}

// Text in one line; bytes that are no text, escaped.
export function inLine(value, name = "body", most = 200) {
  const text = value[name] ?? [...bytesOf(value, name).slice(0, most)]
    .map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`)).join("");
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

export function asJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}

export function hexDump(bytes, most = 4096) {
  const lines = [];
  for (let start = 0; start < Math.min(bytes.length, most); start += 16) {
    const row = [...bytes.slice(start, start + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const signs = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${String(start).padStart(8)}  ${digits}  |${signs}|`);
  }
  return lines.join("\n");
}

export const plural = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
