// Formats numbers, rates, durations and shares for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const general = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

/** 1234567 → "1,234,567"; null → "–". */
export const count = (value) => (value == null ? "–" : whole.format(value));

/** Any number of user code, with six digits at most. */
export const figure = (value) => (value == null ? "–" : general.format(value));

/** A number a second, short: 0.4, 12, 13.8k, 2.1M; null → "–". */
export function rate(value) {
  if (value == null) return "–";
  if (value >= 999_950) return `${(value / 1e6).toFixed(value < 9.95e6 ? 1 : 0)}M`;
  if (value >= 9_995) return `${(value / 1e3).toFixed(value < 99_950 ? 1 : 0)}k`;
  if (value >= 9.95) return whole.format(value);
  return value < 0.05 ? "0" : value.toFixed(1);
}

/** Seconds with two digits: "0.13 s", "4.2 ms", "85 µs"; null → "–". */
export function duration(seconds) {
  if (seconds == null) return "–";
  for (const [unit, factor, least] of [["s", 1, 0.1], ["ms", 1e3, 1], ["µs", 1e6, 1]]) {
    const value = seconds * factor;
    if (value >= least) {
      const digits = Math.max(0, 1 - Math.floor(Math.log10(value)));
      return `${value.toFixed(digits)} ${unit}`;
    }
  }
  return "0 s";
}

/** Seconds in two units: "42 s", "2 min 10 s", "5 h 3 min". */
export function elapsed(seconds) {
  if (seconds == null) return "–";
  const all = Math.round(seconds);
  for (const [unit, length, smaller, part] of [
    ["d", 86_400, "h", 3_600], ["h", 3_600, "min", 60], ["min", 60, "s", 1],
  ]) {
    if (all >= length) {
      const rest = Math.floor((all % length) / part);
      return `${Math.floor(all / length)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
    }
  }
  return `${all} s`;
}

const time = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, hourCycle: "h23" });

/** Unix time → the time of day, "12:04:11.205"; null → "–". */
export const clock = (atS) => (atS == null ? "–" : time.format(new Date(1e3 * atS)));

/** Unix time → "12:04:11". */
export const timeOfDay = (atS) => new Date(1e3 * atS).toLocaleTimeString("en-GB");

const date = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/** Unix time → the local date and time, "2026-11-24 20:22:53"; null → "–". */
export const moment = (atS) =>
  (atS == null || !Number.isFinite(new Date(1e3 * atS).getTime()) ? "–" : date.format(1e3 * atS));

/** A text without the module in front of the classes of this package. */
export const plain = (text) => text?.replaceAll(/\bsunshower\.errors\.(?=[A-Z])/g, "");

/** A share from 0 to 1: "63 %"; null → "–". */
export const share = (value) =>
  value == null ? "–" : `${value > 0 && value < 0.01 ? "< 1" : Math.round(value * 100)} %`;

/** "1 task", "2 tasks". */
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
