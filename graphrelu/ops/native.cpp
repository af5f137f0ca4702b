// The loops of GReLU on a CPU. The equations in torch make sixty passes over the features, each of
// which costs more than its arithmetic; these loops make five.
//
// Plain C functions, called from `__init__.py`: arrays come first, then whole numbers, then others.
// An array that may be missing is null. The equations are those of `functional.py`.
// Sums have a fixed order, whatever the number of threads: the same input gives the same bits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

// The compiler makes a version of each loop for wider vector units, and the loader chooses.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

using Real = REAL;  // float or double

namespace {

constexpr int64_t ROWS = 2048;  // of a chunk
constexpr int LANES = 16;       // partial sums of a dot product
constexpr int64_t PARALLEL = 1 << 15;  // rows from which a product with a matrix takes threads

// Rows of one graph; a large graph has several chunks.
struct Chunk {
    int64_t graph, begin, end;
};

std::vector<Chunk> chunks_of(const int64_t* ptr, int64_t graphs) {
    std::vector<Chunk> chunks;
    for (int64_t g = 0; g < graphs; g++)
        for (int64_t begin = ptr[g]; begin < ptr[g + 1]; begin += ROWS)
            chunks.push_back({g, begin, std::min(begin + ROWS, ptr[g + 1])});
    return chunks;
}

// Sums of each graph, `width` numbers, from those of its chunks.
void add_up(const std::vector<Chunk>& chunks, const std::vector<Real>& parts, int64_t width,
            int64_t graphs, Real* sums) {
    std::fill(sums, sums + graphs * width, Real(0));
    for (size_t k = 0; k < chunks.size(); k++) {
        Real* own = sums + chunks[k].graph * width;
        for (int64_t c = 0; c < width; c++) own[c] += parts[k * width + c];
    }
}

WIDE void project_rows(const Real* __restrict x, const Real* __restrict weight,
                       const Real* __restrict mass, int64_t begin, int64_t end, int64_t channels,
                       Real* __restrict logits, Real* __restrict total) {
    for (int64_t n = begin; n < end; n++) {
        const Real* row = x + n * channels;
        const Real m = mass[n];
        Real lanes[LANES] = {};
        Real sum = Real(0);
        int64_t c = 0;
        for (; c + LANES <= channels; c += LANES)
            for (int j = 0; j < LANES; j++) {
                lanes[j] += row[c + j] * weight[c + j];
                total[c + j] += m * row[c + j];
            }
        for (; c < channels; c++) {
            sum += row[c] * weight[c];
            total[c] += m * row[c];
        }
        for (int j = 0; j < LANES; j++) sum += lanes[j];
        logits[n] = sum;
    }
}

WIDE void project_rows_backward(const Real* __restrict x, const Real* __restrict weight,
                                const Real* __restrict mass, const Real* __restrict grad_logits,
                                const Real* __restrict grad_total, int64_t begin, int64_t end,
                                int64_t channels, Real* __restrict grad_x,
                                Real* __restrict grad_weight) {
    for (int64_t n = begin; n < end; n++) {
        const Real* row = x + n * channels;
        Real* out = grad_x + n * channels;
        const Real grad = grad_logits[n], m = mass[n];
        for (int64_t c = 0; c < channels; c++) {
            out[c] += grad * weight[c] + m * grad_total[c];
            grad_weight[c] += grad * row[c];
        }
    }
}

// `parameters` are the slopes a0, a1 and the intercepts b0, b1 of a graph, `channels` each; the base
// slopes are 1 and `slope`.
WIDE void apply_rows(const Real* __restrict x, const Real* __restrict gamma,
                     const Real* __restrict parameters, Real slope, int64_t begin, int64_t end,
                     int64_t channels, Real* __restrict out) {
    const Real *a0 = parameters, *a1 = a0 + channels, *b0 = a1 + channels, *b1 = b0 + channels;
    for (int64_t n = begin; n < end; n++) {
        const Real* row = x + n * channels;
        Real* to = out + n * channels;
        const Real weight = gamma[n];
        for (int64_t c = 0; c < channels; c++) {
            const Real first = row[c] + weight * (a0[c] * row[c] + b0[c]);
            const Real second = slope * row[c] + weight * (a1[c] * row[c] + b1[c]);
            // Both are NaN where x is.
            to[c] = second >= first ? second : first;
        }
    }
}

WIDE void apply_rows_backward(const Real* __restrict grad, const Real* __restrict x,
                              const Real* __restrict gamma, const Real* __restrict parameters,
                              Real slope, int64_t begin, int64_t end, int64_t channels,
                              Real* __restrict grad_x, Real* __restrict grad_gamma,
                              Real* __restrict sums) {
    const Real *a0 = parameters, *a1 = a0 + channels, *b0 = a1 + channels, *b1 = b0 + channels;
    Real *sum_a0 = sums, *sum_a1 = sum_a0 + channels, *sum_b0 = sum_a1 + channels,
          *sum_b1 = sum_b0 + channels;
    for (int64_t n = begin; n < end; n++) {
        const Real *row = x + n * channels, *from = grad + n * channels;
        Real* to = grad_x + n * channels;
        const Real weight = gamma[n];
        auto entry = [&](int64_t c, Real& sum) {
            const Real line0 = a0[c] * row[c] + b0[c], line1 = a1[c] * row[c] + b1[c];
            // A tie goes to the later segment, as ReLU's does at zero.
            const bool later = slope * row[c] + weight * line1 >= row[c] + weight * line0;
            Real grad0 = later ? Real(0) : from[c], grad1 = later ? from[c] : Real(0);
            to[c] = grad0 * (Real(1) + weight * a0[c]) + grad1 * (slope + weight * a1[c]);
            sum += grad0 * line0 + grad1 * line1;
            grad0 *= weight;
            grad1 *= weight;
            sum_a0[c] += grad0 * row[c];
            sum_a1[c] += grad1 * row[c];
            sum_b0[c] += grad0;
            sum_b1[c] += grad1;
        };
        Real lanes[LANES] = {};
        Real sum = Real(0);
        int64_t c = 0;
        for (; c + LANES <= channels; c += LANES)
            for (int j = 0; j < LANES; j++) entry(c + j, lanes[j]);
        for (; c < channels; c++) entry(c, sum);
        for (int j = 0; j < LANES; j++) sum += lanes[j];
        grad_gamma[n] = sum;
    }
}

// exp(x) for x <= 0 to two units in the last place, in a form that compilers vectorise (Cephes).
inline float exponential(float x) {
    x = std::max(x, -87.0f);
    const float whole = std::floor(x * 1.44269504f + 0.5f);
    const float r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

inline double exponential(double x) { return std::exp(x); }

// N softmax(z / T) of one graph.
WIDE void softmax(const Real* __restrict logits, int64_t count, Real temperature,
                  Real* __restrict out) {
    Real largest = logits[0];
    for (int64_t n = 1; n < count; n++) largest = std::max(largest, logits[n]);
    for (int64_t n = 0; n < count; n++) out[n] = exponential((logits[n] - largest) / temperature);
    double sum = 0.0;
    for (int64_t n = 0; n < count; n++) sum += out[n];
    const Real scale = static_cast<Real>(count / sum);
    for (int64_t n = 0; n < count; n++) out[n] *= scale;
}

// out = alpha * x + (1 - alpha) * A @ current, in one column.
void multiply(const int32_t* rowptr, const int32_t* col, const Real* value, int64_t nodes,
              const Real* x, const Real* current, Real alpha, int64_t threads, Real* out) {
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1 && nodes >= PARALLEL)
    for (int64_t n = 0; n < nodes; n++) {
        Real sum = Real(0);
        for (int32_t e = rowptr[n]; e < rowptr[n + 1]; e++) sum += value[e] * current[col[e]];
        out[n] = alpha * x[n] + (Real(1) - alpha) * sum;
    }
}

}  // namespace

extern "C" {

void grelu_project(const Real* x, const Real* weight, const Real* mass, const int64_t* ptr,
                   Real* logits, Real* mean, int64_t graphs, int64_t channels, int64_t threads) {
    const auto chunks = chunks_of(ptr, graphs);
    std::vector<Real> parts(chunks.size() * channels, Real(0));
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1)
    for (int64_t k = 0; k < static_cast<int64_t>(chunks.size()); k++)
        project_rows(x, weight, mass, chunks[k].begin, chunks[k].end, channels, logits,
                     &parts[k * channels]);
    add_up(chunks, parts, channels, graphs, mean);
    for (int64_t g = 0; g < graphs; g++) {
        const Real count = static_cast<Real>(std::max<int64_t>(1, ptr[g + 1] - ptr[g]));
        for (int64_t c = 0; c < channels; c++) mean[g * channels + c] /= count;
    }
}

// Adds to grad_x, and writes grad_weight.
void grelu_project_backward(const Real* x, const Real* weight, const Real* mass,
                            const Real* grad_logits, const Real* grad_mean, const int64_t* ptr,
                            Real* grad_x, Real* grad_weight, int64_t graphs, int64_t channels,
                            int64_t threads) {
    std::vector<Real> grad_total(grad_mean, grad_mean + graphs * channels);
    for (int64_t g = 0; g < graphs; g++) {
        const Real count = static_cast<Real>(std::max<int64_t>(1, ptr[g + 1] - ptr[g]));
        for (int64_t c = 0; c < channels; c++) grad_total[g * channels + c] /= count;
    }
    auto chunks = chunks_of(ptr, graphs);
    std::vector<Real> parts(chunks.size() * channels, Real(0));
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1)
    for (int64_t k = 0; k < static_cast<int64_t>(chunks.size()); k++)
        project_rows_backward(x, weight, mass, grad_logits, &grad_total[chunks[k].graph * channels],
                              chunks[k].begin, chunks[k].end, channels, grad_x,
                              &parts[k * channels]);
    for (auto& chunk : chunks) chunk.graph = 0;
    add_up(chunks, parts, channels, 1, grad_weight);
}

// The diffusion of one column by power iteration. `scratch` has room for two more columns.
void grelu_diffuse(const Real* x, const int32_t* rowptr, const int32_t* col, const Real* value,
                   Real* scratch, Real* out, int64_t nodes, int64_t steps, int64_t threads,
                   Real alpha) {
    const Real* from = x;
    for (int64_t step = 1; step <= steps; step++) {
        Real* to = step == steps ? out : scratch + step % 2 * nodes;
        multiply(rowptr, col, value, nodes, x, from, alpha, threads, to);
        from = to;
    }
}

void grelu_weigh(const Real* logits, const int64_t* ptr, Real* gamma, int64_t graphs,
                 Real temperature, Real most) {
    for (int64_t g = 0; g < graphs; g++) {
        const int64_t begin = ptr[g], count = ptr[g + 1] - begin;
        if (count == 0) continue;
        softmax(logits + begin, count, temperature, gamma + begin);
        for (int64_t n = begin; n < begin + count; n++) gamma[n] = std::min(gamma[n], most);
    }
}

void grelu_weigh_backward(const Real* logits, const Real* grad_gamma, const int64_t* ptr,
                          Real* grad_logits, int64_t graphs, Real temperature, Real most) {
    for (int64_t g = 0; g < graphs; g++) {
        const int64_t begin = ptr[g], count = ptr[g + 1] - begin;
        if (count == 0) continue;
        const Real* grad = grad_gamma + begin;
        Real* weight = grad_logits + begin;
        softmax(logits + begin, count, temperature, weight);
        double mean = 0.0;
        for (int64_t n = 0; n < count; n++)
            if (weight[n] <= most) mean += static_cast<double>(weight[n]) * grad[n];
        const Real centre = static_cast<Real>(mean / count);
        for (int64_t n = 0; n < count; n++)
            weight[n] *= ((weight[n] <= most ? grad[n] : Real(0)) - centre) / temperature;
    }
}

void grelu_apply(const Real* x, const Real* gamma, const Real* parameters, const int64_t* ptr,
                 Real* out, int64_t graphs, int64_t channels, int64_t threads, Real slope) {
    const auto chunks = chunks_of(ptr, graphs);
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1)
    for (int64_t k = 0; k < static_cast<int64_t>(chunks.size()); k++)
        apply_rows(x, gamma, parameters + chunks[k].graph * 4 * channels, slope, chunks[k].begin,
                   chunks[k].end, channels, out);
}

void grelu_apply_backward(const Real* grad, const Real* x, const Real* gamma,
                          const Real* parameters, const int64_t* ptr, Real* grad_x,
                          Real* grad_gamma, Real* grad_parameters, int64_t graphs,
                          int64_t channels, int64_t threads, Real slope) {
    const auto chunks = chunks_of(ptr, graphs);
    const int64_t width = 4 * channels;
    std::vector<Real> parts(chunks.size() * width, Real(0));
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1)
    for (int64_t k = 0; k < static_cast<int64_t>(chunks.size()); k++)
        apply_rows_backward(grad, x, gamma, parameters + chunks[k].graph * width, slope,
                            chunks[k].begin, chunks[k].end, channels, grad_x, grad_gamma,
                            &parts[k * width]);
    add_up(chunks, parts, width, graphs, grad_parameters);
}

// Whether all edges join nodes of one graph, with weights that are finite and not negative.
int grelu_check(const int64_t* source, const int64_t* target, const int64_t* batch,
                const Real* weight, int64_t edges, int64_t nodes) {
    for (int64_t e = 0; e < edges; e++) {
        const int64_t s = source[e], t = target[e];
        if (s < 0 || s >= nodes || t < 0 || t >= nodes) return 0;
        if (!(weight[e] >= Real(0) && std::isfinite(weight[e]))) return 0;
        if (batch != nullptr && batch[s] != batch[t]) return 0;
    }
    return 1;
}

// The normalised adjacency matrix D^-1/2 A D^-1/2 in compressed rows, which are targets, sorted by
// row and then by column; and its transpose. Duplicates stay, in their order. Returns 1 where both
// are the same, and 0 where not; -1 for an edge whose ends are not among the nodes.
int grelu_prepare(const int64_t* source, const int64_t* target, const Real* weight, int32_t* rowptr,
                  int32_t* col, Real* value, int32_t* rowptr_t, int32_t* col_t, Real* value_t,
                  int64_t edges, int64_t nodes) {
    std::vector<double> scale(nodes, 0.0);
    std::fill(rowptr, rowptr + nodes + 1, 0);
    std::fill(rowptr_t, rowptr_t + nodes + 1, 0);
    for (int64_t e = 0; e < edges; e++) {
        const int64_t s = source[e], t = target[e];
        if (s < 0 || s >= nodes || t < 0 || t >= nodes) return -1;
        scale[t] += weight[e];
        rowptr[t + 1]++;
        rowptr_t[s + 1]++;
    }
    for (double& degree : scale) degree = degree == 0.0 ? 0.0 : 1.0 / std::sqrt(degree);
    std::partial_sum(rowptr, rowptr + nodes + 1, rowptr);
    std::partial_sum(rowptr_t, rowptr_t + nodes + 1, rowptr_t);

    // Each pass sorts by one end, and keeps the order of edges with the same: the first by source,
    // the second by target and the third by source again. They carry the edges along, as looking
    // them up takes twice as long.
    std::vector<int32_t> place(rowptr_t, rowptr_t + nodes), ends(edges);
    std::vector<Real> weights(edges);
    for (int64_t e = 0; e < edges; e++) {
        const int32_t i = place[source[e]]++;
        ends[i] = static_cast<int32_t>(target[e]);
        weights[i] = weight[e];
    }
    place.assign(rowptr, rowptr + nodes);
    for (int64_t s = 0; s < nodes; s++)
        for (int32_t i = rowptr_t[s]; i < rowptr_t[s + 1]; i++) {
            const int32_t t = ends[i], k = place[t]++;
            col[k] = static_cast<int32_t>(s);
            // The product of both scales commutes: a symmetric graph stays symmetric bit for bit.
            value[k] = static_cast<Real>(weights[i] * (scale[s] * scale[t]));
        }
    place.assign(rowptr_t, rowptr_t + nodes);
    for (int64_t t = 0; t < nodes; t++)
        for (int32_t k = rowptr[t]; k < rowptr[t + 1]; k++) {
            const int32_t i = place[col[k]]++;
            col_t[i] = static_cast<int32_t>(t);
            value_t[i] = value[k];
        }
    return std::equal(rowptr, rowptr + nodes + 1, rowptr_t) &&
           std::equal(col, col + edges, col_t) && std::equal(value, value + edges, value_t);
}

}  // extern "C"
