// One dashboard, drawn from its JSON by Grafana's own components: panel frames, graphs, big values and tables are those of
// @grafana/ui, and thresholds, value mappings, units, overrides and transformations are applied by @grafana/data.
//
// Not Grafana's, since no package has them: the grid, the line of variables on top, the marks of annotations, and the bars of
// state timelines (their colours and words come from @grafana/data all the same).
import React, { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { MemoryRouter } from "react-router-dom";
import {
  applyFieldOverrides, cacheFieldDisplayNames, createTheme, dataLinksOverrideProcessor, dateTime, displayNameOverrideProcessor, FieldType, getFieldDisplayName, getFieldDisplayValues,
  identityOverrideProcessor, numberOverrideProcessor, PanelPlugin, standardFieldConfigEditorRegistry, standardTransformers,
  standardTransformersRegistry, stringOverrideProcessor, ThemeContext, thresholdsOverrideProcessor, transformDataFrame,
  unitOverrideProcessor, valueMappingsOverrideProcessor,
} from "@grafana/data";
import {
  BigValue, GlobalStyles, PanelChrome, PortalContainer, TimeSeries,
} from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { firstValueFrom } from "rxjs";
import { Source } from "./data.js";

const CELL = 30, GAP = 8, TIME_ZONE = "utc";
const theme = createTheme({ colors: { mode: "dark" } });

// The options that every panel has. Their editors are the app's, how they are applied is @grafana/data's.
const STANDARD = {
  displayName: displayNameOverrideProcessor, unit: unitOverrideProcessor, min: numberOverrideProcessor, max: numberOverrideProcessor,
  decimals: numberOverrideProcessor, noValue: stringOverrideProcessor, links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor, thresholds: thresholdsOverrideProcessor, color: identityOverrideProcessor,
};
standardFieldConfigEditorRegistry.setInit(() =>
  Object.entries(STANDARD).map(([id, process]) => ({
    id, path: id, name: id, process, editor: () => null, override: () => null, shouldApply: () => true,
  })),
);
standardTransformersRegistry.setInit(() =>
  ["mergeTransformer", "organizeFieldsTransformer", "filterFieldsByNameTransformer", "groupingToMatrixTransformer"]
    .map((name) => standardTransformers[name])
    .map((transformation) => ({ id: transformation.id, name: transformation.name, transformation, editor: () => null })),
);

// The options of single kinds of panels that our dashboards set.
const CUSTOM = [
  "axisSoftMax", "drawStyle", "fillOpacity", "lineStyle", "lineWidth", "scaleDistribution", "showPoints", "spanNulls", "stacking",
  "thresholdsStyle", "align", "cellOptions", "filterable", "minWidth", "width",
];
const plugin = new PanelPlugin(() => null).useFieldConfig({
  useCustomConfig: (builder) =>
    CUSTOM.forEach((path) =>
      builder.addCustomEditor({
        id: path, path, name: path, editor: () => null, override: () => null,
        process: identityOverrideProcessor, shouldApply: () => true,
      }),
    ),
});

async function dataOf(panel, source) {
  const targets = panel.targets.map((target) => ({ ...target, only: panel.targets.length === 1 }));
  const asked = (await Promise.all(targets.map((target) => source.frames(target, panel)))).flat();
  const data = panel.transformations ? await firstValueFrom(transformDataFrame(panel.transformations, asked)) : asked;
  const frames = applyFieldOverrides({
    data, fieldConfig: panel.fieldConfig, replaceVariables: (text) => source.interpolate(text), theme, timeZone: TIME_ZONE,
    fieldConfigRegistry: plugin.fieldConfigRegistry,
  });
  cacheFieldDisplayNames(frames);
  return frames;
}

const KINDS = { stat: Stat, timeseries: Graph, "state-timeline": Timeline, heatmap: Heatmap, table: DataTable };

function Panel({ panel, source, marks, done }) {
  const [frames, setFrames] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => {
    dataOf(panel, source).then(setFrames, (why) => setError(String(why))).finally(done);
  }, []);
  const { x, y, w, h } = panel.gridPos;
  const column = (source.width - GAP) / 24;
  const box = { position: "absolute", left: GAP + x * column, top: y * (CELL + GAP), width: w * column - GAP, height: h * (CELL + GAP) - GAP };
  const Kind = KINDS[panel.type];
  return (
    <div style={box}>
      <PanelChrome width={box.width} height={box.height} title={panel.title} description={panel.description} statusMessage={error}>
        {(width, height) => frames && <Kind {...{ panel, frames, width, height, source, marks }} />}
      </PanelChrome>
    </div>
  );
}

function Stat({ panel, frames, width, height }) {
  const values = getFieldDisplayValues({
    data: frames.length ? frames : [], fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text, theme, timeZone: TIME_ZONE,
  });
  return (
    <div style={{ display: "flex", gap: 4 }}>
      {values.map((value, i) => (
        <BigValue
          key={i} theme={theme} value={value.display} width={(width - 4 * (values.length - 1)) / values.length} height={height}
          colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
          justifyMode={panel.options.justifyMode} textMode={panel.options.textMode} count={values.length}
        />
      ))}
    </div>
  );
}

function Graph({ panel, frames, width, height, source, marks }) {
  const range = { from: dateTime(source.from * 1000), to: dateTime(source.to * 1000) };
  if (!frames.length) return <Nothing panel={panel} />;
  return (
    <TimeSeries
      frames={frames} timeRange={{ ...range, raw: range }} timeZone={TIME_ZONE} width={width} height={height}
      legend={panel.options.legend} options={panel.options}
    >
      {(config) => {
        config.addHook("draw", (plot) => drawMarks(plot, marks));
        return null;
      }}
    </TimeSeries>
  );
}

function Nothing({ panel }) {
  const style = { textAlign: "center", paddingTop: 40, color: theme.colors.text.secondary };
  return <div style={style}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { from, to, color } of marks) {
    const [left, right] = [from, to].map((time) => plot.valToPos(time * 1000, "x", true));
    ctx.fillStyle = ctx.strokeStyle = theme.visualization.getColorByName(color);
    ctx.globalAlpha = 0.12;
    ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
    ctx.globalAlpha = 0.9;
    ctx.fillRect(left, bbox.top + bbox.height - 3, Math.max(3, right - left), 3);
    ctx.setLineDash([4, 4]);
    ctx.strokeRect(left, bbox.top - 2, 0, bbox.height + 4);
  }
  ctx.restore();
}

// Grafana's own is a part of its app, as the state timeline is.
function Heatmap({ panel, frames, width, height, source }) {
  if (!frames.length) return <Nothing panel={panel} />;
  const names = 60, axis = 18, step = source.stepOf(panel), last = Math.max(1, frames.length - 1);
  const bound = (frame) => Number((frame.fields[1].labels.le ?? "").replace("+Inf", "Infinity"));
  const rows = [...frames].sort((one, other) => bound(one) - bound(other));
  const cells = rows.map((frame, row) => frame.fields[1].values.map((value, i) => (value ?? 0) - (row ? rows[row - 1].fields[1].values[i] ?? 0 : 0)));
  const most = Math.max(...cells.flat());
  const rowHeight = (height - axis) / rows.length;
  const at = (ms) => names + ((ms / 1000 - source.from) / (source.to - source.from)) * (width - names);
  return (
    <svg width={width} height={height} style={{ display: "block", fontSize: 11 }}>
      {rows.map((frame, row) => {
        const top = (last - row) * rowHeight;
        return (
          <g key={row}>
            {row < last && row % 2 === 0 && (
              <text x={names - 6} y={top + 4} textAnchor="end" fill={theme.colors.text.secondary}>{seconds(bound(frame))}</text>
            )}
            {cells[row].map((many, i) => many > 1e-9 && (
              <rect key={i} x={at(frame.fields[0].values[i] - step * 1000)} width={Math.max(1, at(step * 1000) - at(0) - 1)} y={top}
                height={Math.max(1, rowHeight - 1)} fill="#5794F2" fillOpacity={0.08 + 0.92 * (many / most) ** 0.4} />
            ))}
          </g>
        );
      })}
    </svg>
  );
}

function seconds(bound) {
  return bound < 1 ? `${+(bound * 1000).toPrecision(3)} ms` : `${bound} s`;
}

function Timeline({ panel, frames, width, height, source }) {
  const step = source.stepOf(panel);
  const names = 90, axis = 18;
  const rows = frames
    .map((frame) => ({ frame, field: frame.fields.find((field) => field.type === FieldType.number) }))
    .map(({ frame, field }) => ({ name: getFieldDisplayName(field, frame, frames), field, times: frame.fields[0].values }))
    .sort((one, other) => one.name.localeCompare(other.name));
  const rowHeight = (height - axis) / Math.max(1, rows.length);
  const span = width - names;
  const at = (ms) => names + ((ms / 1000 - source.from) / (source.to - source.from)) * span;
  return (
    <svg width={width} height={height} style={{ display: "block", font: theme.typography.bodySmall.fontFamily, fontSize: 12 }}>
      {rows.map(({ name, field, times }, i) => (
        <g key={name} transform={`translate(0 ${i * rowHeight})`}>
          <text x={names - 8} y={rowHeight / 2 + 4} textAnchor="end" fill={theme.colors.text.primary}>{name}</text>
          {states(field.values).map(({ first, last, value }) => {
            const display = field.display(value);
            if (value === null && display.text === "") return null;
            const left = at(times[first]), right = Math.min(width, at(times[last]) + (span * step) / (source.to - source.from));
            const color = value === null ? theme.colors.background.secondary : display.color;
            return (
              <g key={first}>
                <rect x={left} width={Math.max(1, right - left)} y={rowHeight * 0.08} height={rowHeight * 0.84} fill={color} fillOpacity={0.85} />
                {right - left > 8 * display.text.length && (
                  <text x={left + 5} y={rowHeight / 2 + 4} fill={theme.colors.getContrastText(color)}>{display.text}</text>
                )}
              </g>
            );
          })}
        </g>
      ))}
      {[0, 0.25, 0.5, 0.75, 1].map((part) => {
        const time = new Date((source.from + part * (source.to - source.from)) * 1000).toISOString().slice(11, 16);
        const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
        return <text key={part} x={names + part * span} y={height - 3} textAnchor={anchor} fill={theme.colors.text.secondary}>{time}</text>;
      })}
    </svg>
  );
}

function states(values) {
  const found = [];
  values.forEach((value, i) => {
    const before = found.at(-1);
    if (before && before.value === value) before.last = i;
    else found.push({ first: i, last: i, value });
  });
  return found;
}

function DataTable({ panel, frames, width, height }) {
  if (!frames.length || !frames[0].length) return <Nothing panel={panel} />;
  return (
    <TableNG
      data={frames[0]} width={width} height={height} cellHeight={panel.options.cellHeight} fieldConfig={panel.fieldConfig}
      initialSortBy={panel.options.sortBy} enableVirtualization={false}
    />
  );
}

function Dashboard({ board, source, marks }) {
  const [left, setLeft] = useState(board.panels.length);
  useEffect(() => {
    if (left === 0) setTimeout(() => (document.title = "drawn"), 1500);
  }, [left]);
  const rows = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const chosen = board.templating.list.filter(({ hide }) => hide === 0).map(({ label }) => label).join("   ");
  return (
    <div style={{ width: source.width, background: theme.colors.background.canvas }}>
      <div style={{ padding: "8px 12px 4px", color: theme.colors.text.primary, display: "flex", justifyContent: "space-between" }}>
        <span style={{ fontSize: 18 }}>{board.title}</span>
        <span style={{ color: theme.colors.text.secondary }}>{chosen}</span>
        <span style={{ color: theme.colors.text.link }}>{board.links.map(({ title }) => title).join("   ")}</span>
      </div>
      <div style={{ position: "relative", height: rows * (CELL + GAP) + GAP }}>
        {board.panels.map((panel) => (
          <Panel key={panel.id} {...{ panel, source, marks }} done={() => setLeft((n) => n - 1)} />
        ))}
      </div>
    </div>
  );
}

async function main() {
  const asked = Object.fromEntries(new URLSearchParams(location.search));
  const board = await (await fetch(asked.board)).json();
  const variables = { job: ".+", instance: ".+", cluster: ".*", site: ".*", master: ".+", class: ".+", datasource: "prometheus" };
  const source = new Source({ prometheus: asked.prometheus, from: +asked.from, to: +asked.to, scrape: +asked.scrape, variables });
  source.width = +asked.width;
  const marks = (await Promise.all(board.annotations.list.map((one) => source.regions(one)))).flat();
  createRoot(document.getElementById("root")).render(
    <MemoryRouter>
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <Dashboard {...{ board, source, marks }} />
        <PortalContainer />
      </ThemeContext.Provider>
    </MemoryRouter>,
  );
}

main();
