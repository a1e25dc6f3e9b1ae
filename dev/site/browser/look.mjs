// Opens the pages of the site in Chromium, in light and dark, wide and as on a telephone.
//
// usage: node look.mjs URL CHROMIUM PICTURES PAGE...
//
// Prints a line for each problem: what axe-core finds serious or critical, a page that is wider than a
// telephone, a picture that is broken, of the other scheme or with too small words, what is asked of
// another host, errors of scripts, and words that people search for without finding their page among
// the first three. The last line counts what was seen.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, executablePath, pictures, ...pages] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const NARROW = 390;
const SMALLEST_WORDS = 9; // in pixels
const MIDDLE = (255 + 3 * 127) / 4; // of red, green, blue and an alpha that is 255 everywhere
const SHOWN = ["index.html", "concepts.html", "guides/unhealthy.html", "reference/flags.html"];
const SOUGHT = {
  CANN: "reference/containers.html",
  PyTorch: "guides/pytorch.html",
  torch_npu: "guides/pytorch.html",
  torchrun: "guides/torchrun.html",
  MindSpore: "guides/mindspore.html",
  vLLM: "guides/vllm.html",
  HCCL: "reference/containers.html",
  ring: "guides/ring.html",
  vNPU: "guides/partition.html",
  partition: "guides/partition.html",
  quarter: "guides/partition.html",
  "slice of a chip": "guides/partition.html",
  share: "guides/share.html",
  Pending: "guides/pending.html",
  stuck: "reference/words.html",
  sick: "guides/unhealthy.html",
  unhealthy: "guides/unhealthy.html",
  taint: "reference/taints.html",
  drain: "guides/maintain.html",
  quota: "guides/quota.html",
  "device plugin": "guides/without-a-claim.html",
  "npu-smi": "guides/pending.html",
};
const LOOKS = [
  { scheme: "light", width: 1280, height: 800 },
  { scheme: "dark", width: 1280, height: 800 },
  { scheme: "light", width: NARROW, height: 844 },
  { scheme: "dark", width: NARROW, height: 844 },
];

const found = new Set();

// What is wrong with a picture, as a person sees it.
async function problems(tab, picture, scheme) {
  const wrong = [];
  const words = await picture.evaluate(async (image) => {
    if (!image.complete || !image.naturalWidth) return 0;
    const drawn = await (await fetch(image.src)).text();
    const scale = image.clientWidth / drawn.match(/viewBox="0 0 (\d+)/)[1];
    return Math.min(...[...drawn.matchAll(/font: (\d+)px/g)].map(([, size]) => size * scale));
  });
  if (!words) return ["is broken"];
  if (words < SMALLEST_WORDS) wrong.push(`has words of ${words.toFixed(1)} pixels`);
  const shot = (await picture.screenshot()).toString("base64");
  const brightness = await tab.evaluate(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const sheet = new OffscreenCanvas(image.width, image.height).getContext("2d");
    sheet.drawImage(image, 0, 0);
    const dots = sheet.getImageData(0, 0, image.width, image.height).data;
    return dots.reduce((sum, value) => sum + value, 0) / dots.length;
  }, shot);
  if (brightness > MIDDLE === (scheme === "dark")) wrong.push(`is not ${scheme}`);
  return wrong;
}

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
    for (const picture of await tab.locator("article img").all()) {
      for (const problem of await problems(tab, picture, scheme)) {
        found.add(`${name} ${scheme} ${width}: ${await picture.getAttribute("src")} ${problem}`);
      }
    }
    if (SHOWN.includes(name)) {
      const file = `${name.replaceAll("/", "-").replace(".html", "")}-${scheme}-${width}.png`;
      await tab.screenshot({ path: join(pictures, file) });
    }
  }
  await context.close();
}
const tab = await browser.newPage();
await tab.goto(`${url}kubectl-npu.html`);
await tab.getByTitle("Switch to dark mode").click();
for (const picture of await tab.locator("article img").all()) {
  for (const problem of await problems(tab, picture, "dark")) {
    found.add(`${await picture.getAttribute("src")} ${problem} when a person switches to it`);
  }
}
for (const [words, page] of Object.entries(SOUGHT)) {
  await tab.goto(`${url}index.html`);
  await tab.getByRole("button", { name: "Search" }).click();
  await tab.getByRole("combobox", { name: "Search" }).fill(words);
  const early = tab.locator(`[role=listbox] li:nth-child(-n+3) a[href*="/${page}"]`).first();
  await early.waitFor({ timeout: 5000 }).catch(() => {
    found.add(`${page} is not among the first three that a search for ${words} finds`);
  });
}
await browser.close();
for (const line of found) console.log(line);
console.log(`${pages.length} pages, ${LOOKS.length} looks each, ${found.size} problems`);
process.exitCode = found.size ? 1 : 0;
