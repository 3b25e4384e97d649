// From Prometheus to Grafana's data frames, as its own data source does it.
import { createDataFrame, FieldType } from "@grafana/data";

const RANGE_POINTS = 300;

/** Asks `prometheus` (a base URL) and replaces variables as Grafana would. from, to: seconds. */
export class Source {
  constructor({ prometheus, from, to, scrape, variables }) {
    Object.assign(this, { prometheus, from, to, scrape, variables });
    this.step = this.stepOf({});
  }

  /** As a panel's options say: no more points than those, and no shorter than that from one to the next. */
  stepOf({ maxDataPoints, interval }) {
    const least = interval === "1m" ? 60 : 1;
    return Math.max(least, Math.ceil((this.to - this.from) / (maxDataPoints ?? RANGE_POINTS)));
  }

  interpolate(text, step = this.step) {
    const known = {
      ...this.variables,
      __rate_interval: `${Math.max(step + this.scrape, 4 * this.scrape)}s`,
      __interval: `${step}s`,
      __interval_ms: step * 1000,
      __range: `${this.to - this.from}s`,
    };
    return text.replace(/\$\{?(\w+)\}?/g, (whole, name) => known[name] ?? whole);
  }

  async ask(path, parameters) {
    const reply = await fetch(`${this.prometheus}/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const body = await reply.json();
    if (body.status !== "success") throw new Error(body.error);
    return body.data.result;
  }

  async frames(target, panel) {
    const step = this.stepOf(panel);
    const query = this.interpolate(target.expr, step);
    if (target.range) {
      const start = Math.ceil(this.from / step) * step;
      const found = await this.ask("query_range", { query, start, end: this.to, step });
      return found.map((series) => this.#overTime(target, series, start, step));
    }
    const found = await this.ask("query", { query, time: this.to });
    return target.format === "table" ? [this.#asTable(target, found)] : found.map((one) => this.#atOnce(target, one));
  }

  async regions(annotation) {
    const query = this.interpolate(annotation.expr);
    const found = await this.ask("query_range", { query, start: this.from, end: this.to, step: this.step });
    return found.flatMap(({ values }) => runs(values, this.step)).map((run) => ({ ...run, color: annotation.iconColor }));
  }

  #overTime(target, { metric, values }, start, step) {
    // A step without a sample is a gap, not a line from one sample to the next.
    const seen = new Map(values.map(([time, value]) => [time, value]));
    const times = [];
    for (let time = start; time <= this.to; time += step) times.push(time);
    const numbers = times.map((time) => (seen.has(time) ? toNumber(seen.get(time)) : null));
    return createDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: FieldType.time, values: times.map((time) => time * 1000) },
        this.#valueField(target, metric, numbers),
      ],
    });
  }

  #atOnce(target, { metric, value: [time, value] }) {
    const times = { name: "Time", type: FieldType.time, values: [time * 1000] };
    return createDataFrame({ refId: target.refId, fields: [times, this.#valueField(target, metric, [toNumber(value)])] });
  }

  #asTable(target, found) {
    const labels = [...new Set(found.flatMap(({ metric }) => Object.keys(metric)))].sort();
    return createDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: FieldType.time, values: found.map(({ value }) => value[0] * 1000) },
        ...labels.map((name) => ({
          name,
          type: FieldType.string,
          values: found.map(({ metric }) => metric[name] ?? ""),
        })),
        {
          name: target.only ? "Value" : `Value #${target.refId}`,
          type: FieldType.number,
          values: found.map(({ value }) => toNumber(value[1])),
        },
      ],
    });
  }

  #valueField(target, metric, values) {
    const name = legend(target, metric);
    return { name: "Value", type: FieldType.number, labels: metric, config: { displayNameFromDS: name }, values };
  }
}

function legend({ legendFormat, expr }, metric) {
  if (legendFormat && legendFormat !== "__auto") {
    return legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? "");
  }
  const labels = Object.entries(metric).map(([name, value]) => `${name}="${value}"`);
  return labels.length ? `{${labels.join(", ")}}` : expr;
}

function toNumber(text) {
  const number = { "+Inf": Infinity, "-Inf": -Infinity }[text] ?? Number(text);
  return Number.isFinite(number) ? number : null;
}

/** Spans of time without a gap. */
function runs(values, step) {
  const found = [];
  for (const [time] of values) {
    const last = found.at(-1);
    if (last && time - last.to <= step) last.to = time;
    else found.push({ from: time, to: time });
  }
  return found;
}
