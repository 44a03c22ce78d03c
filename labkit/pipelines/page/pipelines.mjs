// Schedules below each other, under one clock.
import { together } from "../../views/static/together.mjs";
import { Pipeline } from "./pipeline.mjs";

export const Pipelines = together(Pipeline);
