// Opens the pages of the site in Chromium, in light and dark, wide and as on a telephone.
//
// usage: node look.mjs URL CHROMIUM PICTURES PAGE...
//
// Prints a line for each problem: what axe-core finds serious or critical, a page that is wider than a
// telephone, what is asked of another host, and errors of scripts. The last line counts what was seen.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, executablePath, pictures, ...pages] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const NARROW = 390;
const SHOWN = ["index.html", "concepts.html", "guides/unhealthy.html", "reference/flags.html"];
const LOOKS = [
  { scheme: "light", width: 1280, height: 800 },
  { scheme: "dark", width: 1280, height: 800 },
  { scheme: "light", width: NARROW, height: 844 },
  { scheme: "dark", width: NARROW, height: 844 },
];

const found = new Set();
mkdirSync(pictures, { recursive: true });
const browser = await chromium.launch({
  executablePath,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});
for (const { scheme, width, height } of LOOKS) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height } });
  const tab = await context.newPage();
  let name = "";
  tab.on("pageerror", (error) => found.add(`${name}: ${error.message}`));
  await tab.route("**", (route) => {
    const asked = route.request().url();
    if (asked.startsWith(url) || asked.startsWith("data:")) return route.continue();
    found.add(`${name} asks another host: ${asked}`);
    return route.abort();
  });
  for (name of pages) {
    await tab.goto(url + name);
    await tab.evaluate(axe);
    const rules = { resultTypes: ["violations"] };
    const { violations } = await tab.evaluate((options) => globalThis.axe.run(options), rules);
    for (const { id, impact, nodes } of violations) {
      if (!["serious", "critical"].includes(impact)) continue;
      const first = `${nodes[0].html.slice(0, 160)} (${nodes[0].any[0]?.message ?? ""})`;
      found.add(`${name} ${scheme} ${width}: ${impact} ${id}, ${nodes.length} times, first ${first}`);
    }
    const wide = await tab.evaluate(() => document.documentElement.scrollWidth);
    if (wide > width) found.add(`${name} is ${wide} pixels wide on a screen of ${width}`);
    if (SHOWN.includes(name)) {
      const file = `${name.replaceAll("/", "-").replace(".html", "")}-${scheme}-${width}.png`;
      await tab.screenshot({ path: join(pictures, file) });
    }
  }
  await context.close();
}
await browser.close();
for (const line of found) console.log(line);
console.log(`${pages.length} pages, ${LOOKS.length} looks each, ${found.size} problems`);
process.exitCode = found.size ? 1 : 0;
