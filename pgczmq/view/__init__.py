"""From records to what a person sees; knows neither whether a run is live or recorded, nor how it is driven."""
